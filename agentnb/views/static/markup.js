// The entry module for our own markup, which the kernel makes: all foreign text in it is escaped
// there. In place of the HTML widget of ipywidgets, whose style some front ends do not know.

import { make } from "./dom.js";

function markup() {
  return {
    render({ model, el }) {
      const shown = make("div", "agentnb-markup");
      const show = () => {
        shown.innerHTML = model.get("value");
      };
      model.on("change:value", show);
      show();
      el.append(shown);
      return () => model.off("change:value", show);
    },
  };
}

export default markup;
