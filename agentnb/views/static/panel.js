// The ES module that anywidget takes. The default export is called once for each model: frames come
// before a view is rendered, and many views may show one model, so what they share is made here.
// (The `model` that `initialize` gets is not the object that `render` gets.)

import { Link } from "./link.js";
import { Store } from "./store.js";
import { View } from "./view.js";

function widget() {
  let link = null;
  const linkTo = (model) => {
    const clock = {
      now: () => performance.now(),
      setTimeout: (...settings) => setTimeout(...settings),
      clearTimeout: (timer) => clearTimeout(timer),
    };
    link ??= new Link(model, new Store(), clock);
    return link;
  };
  return {
    initialize({ model }) {
      linkTo(model);
    },
    render({ model, el }) {
      const view = new View(linkTo(model), model);
      el.append(view.element);
      return () => view.close();
    },
  };
}

export default widget;
