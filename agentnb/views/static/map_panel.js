// The entry module of a map's table.

import { connectedWidget } from "./any_widget.js";
import { MapPicture } from "./map_picture.js";
import { MapStore } from "./map_store.js";
import { View } from "./view.js";

function mapWidget() {
  return connectedWidget(
    () => new MapStore(),
    (connection, model) => new View(connection, model, (given) => new MapPicture(given)),
  );
}

export default mapWidget;
