import assert from "node:assert/strict";
import { test } from "node:test";
import { Store } from "../../agentnb/views/static/store.js";
import { ViewModel } from "../../agentnb/views/static/view_model.js";

function ended() {
  const agents = [
    { path: "root", parent: null, status: "completed", ended: 9, begun: 0 },
    { path: "1", parent: "root", status: "failed", ended: 5, begun: 2, error: "It broke." },
  ];
  const store = new Store();
  store.take({ seq: 1, base: null, at: 9, done: true, status: "completed", agents }, 0);
  return { store, viewModel: new ViewModel(store, () => 0) };
}

test("a replay shows the agents of that time, as they were then", () => {
  const { viewModel } = ended();

  viewModel.replay({ at: 1, agents: [{ path: "root", status: "running", ended: null }] });

  assert.equal(viewModel.time(), 1);
  assert.deepEqual(
    viewModel.rows().map(({ path, status }) => [path, status]),
    [["root", "running"]],
  );
  assert.equal(viewModel.exists("1"), false);
});

test("a replay does not change the store, and its end shows the present", () => {
  const { store, viewModel } = ended();

  viewModel.replay({ at: 3, agents: [{ path: "1", status: "running", error: null }] });
  assert.equal(viewModel.row("1").error, null);
  assert.equal(store.rows.get("1").status, "failed");

  viewModel.replay(null);
  assert.equal(viewModel.row("1").error, "It broke.");
  assert.equal(viewModel.time(), 9);
});
