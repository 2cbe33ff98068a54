// A client of the control plane whose types are generated from the document. It runs a checkout and prints what
// it has seen, as one line of JSON.
import type { operations, components } from "./build/api.js";

type Problem = components["schemas"]["Problem"];
type Responses<Op extends keyof operations> = operations[Op]["responses"];
type Body<R> = R extends { content: { "application/json": infer B } } ? B : undefined;
type Success<Op extends keyof operations> = {
  [S in keyof Responses<Op>]: S extends 200 | 201 | 202 | 204 ? { status: S; body: Body<Responses<Op>[S]>; replayed: boolean } : never;
}[keyof Responses<Op>];
type Query<Op extends keyof operations> = NonNullable<operations[Op]["parameters"]["query"]>;
type Request<Op extends keyof operations> = operations[Op] extends { requestBody?: infer R }
  ? NonNullable<R> extends { content: { "application/json": infer B } } ? B : undefined
  : undefined;

class WeftError extends Error {
  constructor(readonly problem: Problem) {
    super(problem.message);
  }
}

const url = process.env["WEFT_URL"] ?? "";
const secret = process.env["WEFT_SECRET"] ?? "";

async function call<Op extends keyof operations>(
  _op: Op, method: string, path: string, more: { key?: string; query?: Query<Op>; body?: Request<Op> } = {},
): Promise<Success<Op>> {
  const query = new URLSearchParams(Object.entries(more.query ?? {}).map(([name, value]) => [name, String(value)]));
  const headers: Record<string, string> = { Authorization: `Bearer ${secret}` };
  if (more.key !== undefined) headers["Idempotency-Key"] = more.key;
  const init: RequestInit = { method, headers };
  if (more.body !== undefined) {
    headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(more.body);
  }
  const res = await fetch(`${url}${path}?${query}`, init);
  const text = await res.text();
  const body: unknown = text === "" ? undefined : JSON.parse(text);
  if (!res.ok) throw new WeftError(body as Problem);
  return { status: res.status, body, replayed: res.headers.get("Idempotent-Replayed") === "true" } as Success<Op>;
}

const runId = process.argv[2] ?? "order-ts";
const input = { cents: 4900, at: "café", note: null };
const start = { workflowName: "checkout", runId, input, labels: { customer: "ann" } };
const first = await call("runs.create", "POST", "/v1/runs", { key: runId, body: start });
const again = await call("runs.create", "POST", "/v1/runs", { key: runId, body: start });
const run = await call("runs.get", "GET", `/v1/runs/${first.body.runId}`);
const pending = await call("runs.result", "GET", `/v1/runs/${runId}/result`);
const sent = await call("signals.send", "POST", `/v1/runs/${runId}/signals/approved`, { body: { payload: input, signalId: "evt_1" } });
const ended = await call("runs.result", "GET", `/v1/runs/${runId}/result`, { query: { wait: 30 } });
if (ended.status !== 200) throw new Error(`the run has not ended: ${ended.body.status}`);
const page = await call("runs.list", "GET", "/v1/runs", { query: { workflow: "checkout", limit: 1, sortOrder: "desc" } });
const events = await call("runs.events", "GET", `/v1/runs/${runId}/events`, { query: { limit: 2 } });

let code: Problem["code"] | undefined;
try {
  await call("runs.get", "GET", "/v1/runs/none");
} catch (e) {
  if (!(e instanceof WeftError)) throw e;
  code = e.problem.code;
}

console.log(JSON.stringify({
  status: first.body.status, replayed: again.replayed, input: run.body.input, pending: pending.status, accepted: sent.body.signalId,
  result: ended.body.result, runs: page.body.data.map((r) => r.runId), events: events.status === 200 ? events.body.data.length : 0, code,
}));
