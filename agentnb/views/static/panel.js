// The entry module of a run's tree.

import { connectedWidget } from "./any_widget.js";
import { Store } from "./store.js";
import { View } from "./view.js";

function widget() {
  return connectedWidget(
    () => new Store(),
    (connection, model) => new View(connection, model),
  );
}

export default widget;
