// The entry module for anywidget. The default export is called once for each model. Frames arrive
// before a view is rendered, and many views may show one model, so their shared parts are made here.
// (The `model` that `initialize` gets is not the object that `render` gets.)

import { Connection } from "./connection.js";
import { Store } from "./store.js";
import { View } from "./view.js";

function widget() {
  let connection = null;
  const connectionTo = (model) => {
    const clock = {
      now: () => performance.now(),
      setTimeout: (...settings) => setTimeout(...settings),
      clearTimeout: (timer) => clearTimeout(timer),
    };
    connection ??= new Connection(model, new Store(), clock);
    return connection;
  };
  return {
    initialize({ model }) {
      connectionTo(model);
    },
    render({ model, el }) {
      const view = new View(connectionTo(model), model);
      el.append(view.element);
      return () => view.close();
    },
  };
}

export default widget;
