// The entry module of the boards.

import { connectedWidget } from "./any_widget.js";
import { BoardStore } from "./board_store.js";
import { BoardView } from "./board_view.js";

function boardWidget() {
  return connectedWidget(
    () => new BoardStore(),
    (connection, model) => new BoardView(connection, model),
  );
}

export default boardWidget;
