// The page at "/": models, addresses, live figures, a request to copy for each model. It asks this
// server alone, once a second while it is seen. Names come from models: they are set as text only.
"use strict";

const LOOK_MS = 1000;
const USUAL_FREE_SIZE = 16;  // of free axes but the first, as the server's own trials have them
const MOST_ELEMENTS_IN_JSON = 256;
const PORTABLE_JSON = ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32",
  "INT64", "FP32", "FP64", "BYTES"];
const NUMPY = {BOOL: "bool", UINT8: "uint8", UINT16: "uint16", UINT32: "uint32", UINT64: "uint64",
  INT8: "int8", INT16: "int16", INT32: "int32", INT64: "int64", FP16: "float16", BF16: "float32",
  FP32: "float32", FP64: "float64", BYTES: "object"};

const $ = (id) => document.getElementById(id);
let key = "";
let before = null;     // the statistics of the last look, with their time
let chosen = null;     // {name, version} of the model whose request is shown
let described = null;  // its metadata

class NeedsKey extends Error {}

async function ask(path, method = "GET") {
  const headers = key === "" ? {} : {Authorization: "Bearer " + key};
  const reply = await fetch(path, {method, headers, cache: "no-store",
    body: method === "POST" ? "{}" : undefined});
  if (reply.status === 401) throw new NeedsKey();
  return reply.json();
}

function element(tag, text, className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = className;
  return made;
}

function row(...cells) {
  const made = document.createElement("tr");
  made.append(...cells);
  return made;
}

const id = (model) => model.name + "/" + model.version;

function shownTime(ns) {
  if (ns < 1e3) return ns.toFixed(0) + " ns";
  if (ns < 1e6) return (ns / 1e3).toFixed(1) + " µs";
  return ns < 1e9 ? (ns / 1e6).toFixed(2) + " ms" : (ns / 1e9).toFixed(2) + " s";
}

function shownCount(number) {
  return number.toLocaleString("en", {maximumFractionDigits: number < 10 ? 1 : 0});
}

// The events since the last look; null: it is the first.
function change(now, then, read) {
  if (!then) return null;
  const [a, b] = [read(then), read(now)];
  return {count: b.count - a.count, ns: b.ns - a.ns};
}

const meanOf = (part) => part && part.count > 0 ? shownTime(part.ns / part.count) : "–";

function figures(now, then, seconds) {
  const stats = (one) => one.inference_stats;
  const done = change(now, then, (one) => stats(one).success);
  const failed = change(now, then, (one) => stats(one).fail);
  const hits = change(now, then, (one) => stats(one).cache_hit);
  const misses = change(now, then, (one) => stats(one).cache_miss);
  const runs = change(now, then, (one) => ({count: one.execution_count, ns: one.inference_count}));
  const looks = hits && misses ? hits.count + misses.count : 0;
  return [
    done ? shownCount(done.count / seconds) : "–",
    meanOf(done),
    meanOf(change(now, then, (one) => stats(one).queue)),
    meanOf(change(now, then, (one) => stats(one).compute_infer)),
    runs && runs.count > 0 ? shownCount(runs.ns / runs.count) : "–",
    looks > 0 ? Math.round(100 * hits.count / looks) + "%" : "–",
    failed ? shownCount(failed.count / seconds) : "–",
  ];
}

function modelRow(model, statistics, seconds) {
  const link = element("button", model.name, "link");
  link.type = "button";
  link.addEventListener("click", () => choose(model));
  const first = document.createElement("td");
  first.append(link);
  if (model.state !== "READY") {
    const reason = element("td", model.reason || "", "reason");
    reason.colSpan = 7;
    return row(first, element("td", model.version), element("td", model.state, "bad"), reason);
  }
  const now = statistics.get(id(model));
  const then = before && before.statistics.get(id(model));
  const cells = now ? figures(now, then, seconds) : Array(7).fill("–");
  return row(first, element("td", model.version), element("td", model.state, "good"),
    ...cells.map((cell) => element("td", cell, "number")));
}

async function look() {
  const [index, all, ready] = await Promise.all([ask("/v2/repository/index", "POST"),
    ask("/v2/models/stats"), ask("/v2/health/ready")]);
  const at = performance.now();
  const statistics = new Map(all.model_stats.map((one) => [id(one), one]));
  const seconds = before ? (at - before.at) / 1000 : 1;
  const focused = document.activeElement && document.activeElement.textContent;
  $("models").tBodies[0].replaceChildren(
    ...index.map((model) => modelRow(model, statistics, seconds)));
  for (const link of $("models").querySelectorAll("button")) {
    if (link.textContent === focused) link.focus();
  }
  before = {statistics, at};
  $("empty").hidden = index.length > 0;
  $("models").hidden = index.length === 0;
  $("state").textContent = ready.ready ? "ready" : "not ready";
  $("state").className = ready.ready ? "good" : "bad";
  $("key-form").hidden = true;
  if (chosen === null && index.length > 0) {
    await choose(index.find((model) => model.state === "READY") || index[0]);
  }
}

// A request's tensor with a size for each axis.
function sized(tensor) {
  return tensor.shape.map((size, axis) => size >= 0 ? size : axis === 0 ? 1 : USUAL_FREE_SIZE);
}

const elementsOf = (shape) => shape.reduce((product, size) => product * size, 1);

function dataOf(datatype, count) {
  const one = datatype === "BYTES" ? "text" : datatype === "BOOL" ? true : 0;
  return Array.from({length: count}, (_, i) => datatype.startsWith("FP") ? i / count : one);
}

const quoted = (text) => "'" + text.replaceAll("'", "'\\''") + "'";

function curlRequest(model, metadata) {
  const inputs = metadata.inputs.map((tensor) => {
    const shape = sized(tensor);
    return {name: tensor.name, datatype: tensor.datatype, shape,
      data: dataOf(tensor.datatype, elementsOf(shape))};
  });
  return "curl " + (key === "" ? "" : "-H 'Authorization: Bearer KEY' ") +
    "-d " + quoted(JSON.stringify({inputs})) + " " +
    quoted(location.origin + "/v2/models/" + model.name + "/versions/" + model.version + "/infer");
}

function pythonRequest(model, metadata) {
  const lines = ["# pip install 'tritonclient[http]'", "import numpy", "import tritonclient.http", "",
    "client = tritonclient.http.InferenceServerClient(" + JSON.stringify(location.host) + ")",
    "inputs = []"];
  for (const tensor of metadata.inputs) {
    const shape = JSON.stringify(sized(tensor));
    const zeros = tensor.datatype === "BYTES" ? "numpy.full(" + shape + ", b\"text\", \"object\")"
      : "numpy.zeros(" + shape + ", \"" + NUMPY[tensor.datatype] + "\")";
    lines.push("tensor = tritonclient.http.InferInput(" + JSON.stringify(tensor.name) + ", " + shape +
      ", \"" + tensor.datatype + "\")", "tensor.set_data_from_numpy(" + zeros + ")",
      "inputs.append(tensor)");
  }
  const header = key === "" ? "" : ", headers={\"Authorization\": \"Bearer KEY\"}";
  lines.push("result = client.infer(" + JSON.stringify(model.name) + ", inputs, model_version=" +
    JSON.stringify(model.version) + header + ")");
  for (const tensor of metadata.outputs) {
    lines.push("print(result.as_numpy(" + JSON.stringify(tensor.name) + "))");
  }
  return lines.join("\n");
}

function tensorRows(metadata) {
  const one = (kind) => (tensor) => row(element("td", kind, "muted"), element("td", tensor.name),
    element("td", tensor.datatype), element("td", "[" + tensor.shape.join(", ") + "]"));
  return [...metadata.inputs.map(one("input")), ...metadata.outputs.map(one("output"))];
}

async function choose(model) {
  chosen = model;
  const path = "/v2/models/" + encodeURIComponent(model.name) + "/versions/" + model.version;
  const metadata = await ask(path);
  if (chosen !== model) return;  // another was chosen meanwhile
  described = metadata;
  $("model").hidden = false;
  $("model-title").textContent = model.name + ", version " + model.version;
  const serves = metadata.inputs !== undefined;
  const parameters = metadata.parameters || {};
  $("why").textContent = serves
    ? "Backend " + parameters.backend + ", " + parameters.precision + ": " + parameters.backend_why
    : metadata.error;
  $("tensors").tBodies[0].replaceChildren(...(serves ? tensorRows(metadata) : []));
  for (const part of ["tensors", "request", "copy", "request-note"]) $(part).hidden = !serves;
  if (!serves) return;
  const inJson = metadata.inputs.every((tensor) => PORTABLE_JSON.includes(tensor.datatype) &&
    elementsOf(sized(tensor)) <= MOST_ELEMENTS_IN_JSON);
  $("request-note").textContent = inJson ? "In a shell:"
    : "In Python, as the tensors are large or have no form in JSON:";
  $("request").textContent = (inJson ? curlRequest : pythonRequest)(model, described);
}

async function showAddresses() {
  const server = await ask("/v2");
  $("version").textContent = server.version;
  const rows = [["Open Inference Protocol", "/v2"], ["Prometheus", "/metrics"],
    ["OpenAPI", "/openapi.json"]].map(([name, path]) => {
    const link = element("a", location.origin + path);
    link.href = path;
    const cell = document.createElement("td");
    cell.append(link);
    return row(element("td", name), cell);
  });
  $("addresses").tBodies[0].replaceChildren(...rows);
}

let timer = 0;

async function turn() {
  clearTimeout(timer);
  if (document.hidden) return;
  try {
    if ($("version").textContent === "") await showAddresses();
    await look();
  } catch (error) {
    $("state").className = "bad";
    $("state").textContent = error instanceof NeedsKey ? "no key" : "no answer";
    if (error instanceof NeedsKey) $("key-form").hidden = false;
    before = null;
  }
  clearTimeout(timer);
  timer = setTimeout(turn, LOOK_MS);
}

$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key = $("key").value;
  turn();
});
$("copy").addEventListener("click", async () => {
  const text = $("request").textContent;
  try {
    await navigator.clipboard.writeText(text);
    $("copy").textContent = "Copied";
  } catch {
    getSelection().selectAllChildren($("request"));  // the clipboard is closed to pages over http
    $("copy").textContent = "Selected";
  }
  setTimeout(() => { $("copy").textContent = "Copy"; }, 1500);
});
document.addEventListener("visibilitychange", turn);
turn();
