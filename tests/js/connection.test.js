import assert from "node:assert/strict";
import { test } from "node:test";
import { connectedWidget } from "../../agentnb/views/static/any_widget.js";
import { Connection } from "../../agentnb/views/static/connection.js";
import { Store } from "../../agentnb/views/static/store.js";
import { HandClock } from "./clock.js";
import { fakeModel } from "./page/fake_model.js";

function linked({ snapshot = frame(1, null), hearsEnd = true, isBusy } = {}) {
  const model = fakeModel({ snapshot });
  const clock = new HandClock();
  const connection = new Connection(model.proxy(), new Store(), clock, { hearsEnd, isBusy });
  return { model, clock, connection };
}

function frame(seq, base = seq - 1, fields = {}) {
  const root = { path: "root", parent: null, status: "running", tokens: seq };
  return {
    type: "frame",
    seq,
    base,
    at: seq,
    done: false,
    status: "running",
    agents: [root],
    ...fields,
  };
}

function view(id = "v") {
  const heard = [];
  return {
    ...{ id, heard },
    frame: (change) => heard.push(change.outcome),
    message: (message) => heard.push(message.type),
    alive: () => heard.push("alive"),
    closed: (how) => heard.push(how),
  };
}

/** A kernel that has nothing new answers each question whether it has. */
function answers(model) {
  model.answer = ({ type }) => type === "sync" && model.tell({ type: "newest" });
}

const types = (model) => model.sent.map(({ type }) => type);

test("a view hears that its kernel is lost though its run has ended and sends nothing", () => {
  const model = fakeModel({ snapshot: frame(1, null, { done: true }) });
  const slots = new Set();
  const statusChanged = {
    connect: (slot) => slots.add(slot),
    disconnect: (slot) => slots.delete(slot),
  };
  const say = (status) => [...slots].map((slot) => slot(null, status));
  let made = null;
  const widget = connectedWidget(
    () => new Store(),
    (connection) => {
      made = view();
      connection.join(made);
      return made;
    },
  );
  const proxy = { ...model.proxy(), widget_manager: { kernel: { statusChanged } } };
  const over = widget.initialize({ model: proxy });
  widget.render({ model: proxy, el: { append: () => {} } });
  model.tell(frame(2, null, { done: true }));
  say("busy");
  assert.deepEqual(made.heard, ["alive", "full"]);

  say("autorestarting");
  assert.deepEqual(made.heard.at(-1), { wasDone: true, isSilent: false, wasAlive: true });
  over();
  assert.equal(slots.size, 0);
});

test("a frame that comes before the first view is in the store", () => {
  const { model, connection } = linked();
  model.tell(frame(2));

  assert.equal(connection.store.rows.get("root").tokens, 2);
});

test("a view announces itself when it joins and when it leaves", () => {
  const { model, connection } = linked();
  const one = view("one");

  connection.join(one);
  connection.leave(one);

  assert.deepEqual(model.sent, [
    { type: "hello", view: "one" },
    { type: "bye", view: "one" },
  ]);
});

test("after a gap the page requests a full frame, every two seconds until it comes", () => {
  const { model, clock, connection } = linked();
  connection.join(view());

  model.tell(frame(3));
  model.tell(frame(4));
  assert.deepEqual(types(model), ["hello", "resend"]);
  clock.pass(2_000);
  assert.deepEqual(types(model), ["hello", "resend", "resend"]);

  model.tell(frame(5, null));
  clock.pass(4_000);
  assert.deepEqual(types(model), ["hello", "resend", "resend"]);
  assert.equal(connection.store.seq, 5);
});

test("in silence the page checks every five seconds, until the run has ended", () => {
  const { model, clock, connection } = linked();
  connection.join(view());

  clock.pass(10_000);
  assert.deepEqual(model.sent.slice(1), [
    { type: "sync", seq: 1 },
    { type: "sync", seq: 1 },
  ]);

  model.tell(frame(2, 1, { done: true }));
  clock.pass(60_000);
  assert.equal(model.sent.length, 3);
});

test("without a view the page sends no requests", () => {
  const { model, clock, connection } = linked();
  const one = view();
  connection.join(one);
  connection.leave(one);

  clock.pass(60_000);

  assert.deepEqual(types(model), ["hello", "bye"]);
  assert.equal(clock.waiting, 0);
});

test("a message for one view reaches no other", () => {
  const { model, connection } = linked();
  const [one, other] = [view("one"), view("other")];
  connection.join(one);
  connection.join(other);

  model.tell({ type: "details", view: "one" });
  model.tell({ type: "notice", text: "for all" });

  assert.deepEqual(one.heard, ["alive", "details", "notice"]);
  assert.deepEqual(other.heard, ["alive", "notice"]);
});

test("a newer snapshot is applied as a frame, an older one is not", () => {
  const { model, connection } = linked();
  model.update({ snapshot: frame(9, null) });
  model.update({ snapshot: frame(4, null) });

  assert.equal(connection.store.seq, 9);
});

test("a view that joins late learns how things stand", () => {
  const late = (connection) => {
    const other = view("other");
    connection.join(other);
    return other.heard;
  };
  const { model, clock, connection } = linked();
  model.tell(frame(2)); // before the first view is rendered
  const one = view();
  connection.join(one);
  assert.deepEqual(one.heard, ["alive"]);
  assert.deepEqual(late(connection), ["alive"]);

  model.close();
  const lost = { wasDone: false, isSilent: false, wasAlive: true };
  assert.deepEqual(one.heard.at(-1), lost);
  assert.deepEqual(late(connection), [lost]);
  const since = connection.stillSince;
  clock.pass(60_000);
  model.tell(frame(3));
  assert.deepEqual(one.heard.slice(1), [lost]);
  assert.equal(connection.stillSince, since);

  const silent = linked();
  silent.connection.join(view());
  silent.clock.pass(5_000);
  assert.deepEqual(late(silent.connection), [{ ...lost, isSilent: true, wasAlive: false }]);
  silent.model.tell(frame(2));
  assert.deepEqual(late(silent.connection), ["alive"]);
});

test("a kernel that is gone before the first view is reported once", () => {
  const { model, clock, connection } = linked();
  model.close();
  const one = view();
  connection.join(one);
  clock.pass(60_000);

  assert.deepEqual(one.heard, [{ wasDone: false, isSilent: false, wasAlive: false }]);
  assert.equal(clock.waiting, 0);
});

test("a lost kernel is reported once and gets no more messages", () => {
  const { model, clock, connection } = linked();
  const one = view();
  connection.join(one);

  model.close();
  model.close();
  connection.send({ type: "cancel", agent: "1" });
  clock.pass(60_000);

  assert.deepEqual(one.heard, [{ wasDone: false, isSilent: false, wasAlive: false }]);
  assert.deepEqual(types(model), ["hello"]);
  assert.equal(connection.store.time(1e9), connection.store.time(2e9));
});

test("a page whose kernel does not answer says so after five seconds, and its clock stands", () => {
  const { model, clock, connection } = linked();
  const one = view();
  connection.join(one);
  assert.equal(connection.isAlive, false);

  clock.pass(4_999);
  assert.deepEqual(one.heard, []);
  assert.equal(connection.isClosed, false);
  clock.pass(1);

  assert.deepEqual(one.heard, [{ wasDone: false, isSilent: true, wasAlive: false }]);
  assert.equal(connection.isClosed, true);
  assert.equal(connection.store.time(clock.now()), 1);
  assert.ok(types(model).includes("hello"));
});

for (const [what, spoken] of [
  ["an answer", (model) => model.tell(frame(1, null))],
  ["a frame", (model) => model.tell(frame(2))],
  ["a newer state", (model) => model.update({ snapshot: frame(3, null) })],
]) {
  test(`${what} is a sign of life, also one that comes late`, () => {
    for (const afterMs of [100, 30_000]) {
      const { model, clock, connection } = linked();
      const one = view();
      connection.join(one);
      clock.pass(afterMs);

      spoken(model);
      answers(model);

      assert.equal(connection.isAlive, true);
      assert.equal(connection.isClosed, false);
      assert.ok(one.heard.includes("alive"));
      const at = connection.store.time(clock.now());
      assert.ok(connection.store.time(clock.now() + 2_000) === at + 2);
      clock.pass(60_000);
      assert.equal(
        one.heard.filter((word) => word.wasDone !== undefined).length,
        +(afterMs > 5_000),
      );
    }
  });
}

for (const done of [false, true]) {
  const run = done ? "a run that has ended" : "a run";
  test(`where a front end does not say that its kernel is lost, silence tells it of ${run}`, () => {
    const { model, clock, connection } = linked({ hearsEnd: false });
    const one = view();
    connection.join(one);
    model.tell(frame(2, null, { done }));
    answers(model);
    clock.pass(60_000);
    assert.equal(connection.isAlive, true);

    model.answer = () => {};
    clock.pass(25_000);

    assert.deepEqual(one.heard.at(-1), { wasDone: done, isSilent: true, wasAlive: true });
    assert.equal(connection.isAlive, false);
    assert.equal(connection.store.time(clock.now()), connection.store.time(clock.now() + 2_000));

    answers(model);
    clock.pass(20_000);
    assert.equal(one.heard.at(-1), "alive");
    assert.equal(connection.isAlive, true);
  });
}

test("a kernel that is silent since it is busy is not lost, one that is idle is", () => {
  let isBusy = true;
  const { model, clock, connection } = linked({ isBusy: () => isBusy });
  const one = view();
  connection.join(one);
  model.tell(frame(2));
  clock.pass(600_000);
  assert.equal(connection.isAlive, true);

  // Restarted from another page: nothing says so here.
  isBusy = false;
  clock.pass(25_000);
  assert.equal(connection.isAlive, false);
  assert.deepEqual(one.heard.at(-1), { wasDone: false, isSilent: true, wasAlive: true });

  model.tell(frame(3));
  assert.equal(connection.isAlive, true);
});

test("a run that has ended is not watched, but what is asked of it tells that its kernel is lost", () => {
  const { model, clock, connection } = linked();
  const one = view();
  connection.join(one);
  model.tell(frame(2, null, { done: true }));
  clock.pass(600_000);
  assert.equal(connection.isAlive, true);

  model.answer = ({ type }) => type === "details" && model.tell({ type: "details" });
  connection.send({ type: "details", view: "v" });
  clock.pass(600_000);
  assert.equal(connection.isAlive, true);

  model.answer = () => {};
  connection.send({ type: "here", view: "v" });
  clock.pass(600_000);
  assert.equal(connection.isAlive, true);

  connection.send({ type: "details", view: "v" });
  clock.pass(25_000);
  assert.deepEqual(one.heard.at(-1), { wasDone: true, isSilent: true, wasAlive: true });
});

test("a kernel that becomes busy while its answer is awaited is not lost", () => {
  let isBusy = false;
  const { model, clock, connection } = linked({ isBusy: () => isBusy });
  connection.join(view());
  model.tell(frame(2));
  clock.pass(6_000);
  isBusy = true;
  clock.pass(60_000);

  assert.equal(connection.isAlive, true);
});

for (const done of [false, true]) {
  test(`a page that has lost its server stands still, and wakes: done is ${done}`, () => {
    const { model, clock, connection } = linked();
    const one = view();
    connection.join(one);
    model.tell(frame(2, null, { done }));

    connection.lost();
    clock.pass(4_999);
    connection.lost();
    answers(model);
    model.tell({ type: "newest" });
    clock.pass(60_000);
    assert.equal(connection.isAlive, true);

    model.answer = () => {};
    clock.pass(5_100); // one question is open already
    connection.lost();
    clock.pass(5_000);
    assert.deepEqual(one.heard.at(-1), { wasDone: done, isSilent: true, wasAlive: true });
    connection.lost();
    assert.equal(one.heard.filter((word) => word.isSilent).length, 1);
    answers(model);
    connection.found();
    assert.equal(one.heard.at(-1), "alive");
    assert.equal(connection.isAlive, true);
  });
}

test("a kernel that had spoken and is gone is told from one that never was there", () => {
  const { model, connection } = linked();
  const one = view();
  connection.join(one);
  model.tell(frame(2, 1, { done: true }));

  model.close();

  assert.deepEqual(one.heard.at(-1), { wasDone: true, isSilent: false, wasAlive: true });
  assert.equal(connection.isAlive, false);
});

test("a message that cannot be sent closes the connection without an error", () => {
  const { model, connection } = linked();
  const one = view();
  model.answer = () => {
    throw new Error("the comm is closed");
  };

  connection.join(one);

  assert.deepEqual(one.heard, [{ wasDone: false, isSilent: false, wasAlive: false }]);
});

test("what stands still is of the kernel's last word, and so are its clocks", () => {
  const { model, clock, connection } = linked();
  connection.join(view());
  model.tell(frame(2, 1, { at: 4 }));
  clock.pass(3_000);
  assert.equal(connection.store.time(clock.now()), 7);

  model.close();

  assert.equal(connection.store.time(clock.now()), 4);
});

test("a word to a widget beside the view is a word of the kernel", () => {
  const { model, clock, connection } = linked();
  connection.join(view());
  model.tell(frame(2, 1, { at: 4 }));
  clock.pass(3_000);
  connection.spoke();
  clock.pass(2_000);

  model.close();
  connection.spoke(); // by what the page itself changes

  assert.equal(connection.store.time(clock.now()), 7);
});
