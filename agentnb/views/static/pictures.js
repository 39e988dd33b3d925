// The pictures in a tool's result. Each is an image in a `data:` URL, or words for a file that is
// not shown. No other address is loaded, so that a record loads nothing from elsewhere.

import { make } from "./dom.js";

const IMAGE = /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}$/;

/** Whether an address is a `data:` URL that holds an image. */
export function isImage(address) {
  return typeof address === "string" && IMAGE.test(address);
}

export class Pictures {
  #shown = [];
  element = make("div", "agentnb-tool-pictures", { hidden: "" });

  /** Shows these pictures; if they have not changed, their elements stay. */
  show(pictures) {
    const same = ({ src, alt }, n) => src === this.#shown[n].src && alt === this.#shown[n].alt;
    if (pictures.length === this.#shown.length && pictures.every(same)) return;
    this.#shown = pictures;
    this.element.replaceChildren(...pictures.map(pictureOf));
    this.element.hidden = pictures.length === 0;
  }
}

function pictureOf({ src, alt }) {
  if (isImage(src)) return make("img", "agentnb-tool-picture", { src, alt });
  return make("div", "agentnb-tool-note", { dir: "auto" }, `${alt}: not shown here`);
}
