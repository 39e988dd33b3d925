// The object that anywidget expects from an entry module. anywidget calls the factory once for each
// model. Messages arrive before a view is rendered, and several views may show one model, so they
// share a connection made here. (`initialize` and `render` get different `model` objects.)

import { Connection } from "./connection.js";

/** Returns the widget of one model: one connection, and any number of views. */
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
