// A model as anywidget passes it, without a kernel: `sent` keeps the view's messages, and `tell` plays
// the kernel.

export function fakeModel(traits) {
  const state = { controls: true, height: 0, snapshot: {}, ...traits };
  const listeners = new Map();
  const fire = (name, ...values) => {
    for (const callback of [...(listeners.get(name) ?? [])]) callback(...values);
  };
  const core = {
    sent: [],
    /** Called with every message of the view, so that a test can answer it. */
    answer: () => {},
    tell: (message) => fire("msg:custom", message, []),
    close: () => fire("comm:close"),
    update(changes) {
      Object.assign(state, changes);
      for (const name of Object.keys(changes)) fire(`change:${name}`);
    },
    /** A new object each time, as in anywidget. */
    proxy: () => ({
      get: (name) => state[name],
      set: (name, value) => {
        state[name] = value;
      },
      save_changes: () => {},
      on(name, callback) {
        listeners.set(name, [...(listeners.get(name) ?? []), callback]);
      },
      off(name, callback) {
        listeners.set(
          name,
          (listeners.get(name) ?? []).filter((one) => one !== callback),
        );
      },
      send(message) {
        const plain = JSON.parse(JSON.stringify(message));
        core.sent.push(plain);
        core.answer(plain);
      },
    }),
    listening: () => [...listeners.values()].reduce((sum, all) => sum + all.length, 0),
  };
  return core;
}
