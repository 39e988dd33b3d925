// Entry module for sliders in a page without a tree. It shows nothing, and lives as long as its model.

import { nameSliders } from "./labels.js";

function namer() {
  return {
    initialize() {
      return nameSliders(document.body);
    },
  };
}

export default namer;
