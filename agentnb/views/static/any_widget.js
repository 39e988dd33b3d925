// The object that anywidget expects from an entry module. anywidget calls the factory once for each
// model. Messages arrive before a view is rendered, and several views may show one model, so they
// share a connection made here. (`initialize` and `render` get different `model` objects.)

import { Connection } from "./connection.js";

// What Jupyter's front ends say of a kernel that is lost, and with it the widgets' connections.
const LOST = new Set(["dead", "restarting", "autorestarting", "terminating"]);

// Closes a connection whose kernel is lost: a view of a run that has ended sends nothing that could
// fail. A page whose server is gone hears no such status, so it heeds the way to the kernel, too.
// Returns a function that ends this.
export function hearKernel(model, connection) {
  const kernel = model.widget_manager?.kernel;
  const heard = [
    [
      kernel?.statusChanged,
      (_, status) => (LOST.has(status) || kernel.isDisposed) && connection.close(),
    ],
    [
      kernel?.connectionStatusChanged,
      (_, status) => (status === "connected" ? connection.found() : connection.lost()),
    ],
  ];
  for (const [signal, hear] of heard) signal?.connect?.(hear);
  return () => {
    for (const [signal, hear] of heard) signal?.disconnect?.(hear);
  };
}

export function connectTo(model, store) {
  const clock = {
    now: () => performance.now(),
    setTimeout: (...settings) => setTimeout(...settings),
    clearTimeout: (timer) => clearTimeout(timer),
  };
  const kernel = model.widget_manager?.kernel;
  const hearsEnd = Boolean(kernel?.statusChanged);
  return new Connection(model, store, clock, { hearsEnd, isBusy: () => kernel?.status === "busy" });
}

/** Returns the widget of one model: one connection, and any number of views. */
export function connectedWidget(makeStore, makeView) {
  let connection = null;
  const connectionTo = (model) => {
    connection ??= connectTo(model, makeStore());
    return connection;
  };
  return {
    initialize({ model }) {
      return hearKernel(model, connectionTo(model));
    },
    render({ model, el }) {
      const view = makeView(connectionTo(model), model);
      el.append(view.element);
      return () => view.close();
    },
  };
}
