// What anywidget asks of an entry module. The factory is called once for each model. Messages arrive
// before a view is rendered, and many views may show one model, so their shared connection is made
// here. (The `model` that `initialize` gets is not the object that `render` gets.)

import { Connection } from "./connection.js";

/** The widget of one model: one connection, and any number of views. */
export function connectedWidget(makeStore, makeView) {
  let connection = null;
  const connectionTo = (model) => {
    const clock = {
      now: () => performance.now(),
      setTimeout: (...settings) => setTimeout(...settings),
      clearTimeout: (timer) => clearTimeout(timer),
    };
    connection ??= new Connection(model, makeStore(), clock);
    return connection;
  };
  return {
    initialize({ model }) {
      connectionTo(model);
    },
    render({ model, el }) {
      const view = makeView(connectionTo(model), model);
      el.append(view.element);
      return () => view.close();
    },
  };
}
