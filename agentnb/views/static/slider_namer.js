// The entry module for sliders in a page without a tree: shows nothing, lives as long as its model.

import { nameSliders } from "./labels.js";

function namer() {
  return {
    initialize() {
      return nameSliders(document.body);
    },
  };
}

export default namer;
