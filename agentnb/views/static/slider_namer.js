// A module of its own for sliders in a page without a tree. It shows nothing: it is there as long as
// its model is.

import { nameSliders } from "./labels.js";

function namer() {
  return {
    initialize() {
      return nameSliders(document.body);
    },
  };
}

export default namer;
