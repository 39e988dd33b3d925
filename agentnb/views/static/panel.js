// The entry module of a run's tree.

import { connectedWidget } from "./any_widget.js";
import { Store } from "./store.js";
import { TreePicture } from "./tree_picture.js";
import { View } from "./view.js";

function widget() {
  return connectedWidget(
    () => new Store(),
    (connection, model) => new View(connection, model, (given) => new TreePicture(given)),
  );
}

export default widget;
