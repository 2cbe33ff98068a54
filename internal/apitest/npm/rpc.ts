// The client of json-rpc-2.0, which knows nothing of Weft, calls, notifies, sends batches and reads errors. It
// prints what it has seen, as one line of JSON.
import { JSONRPCClient, JSONRPCErrorException } from "json-rpc-2.0";
import type { components } from "./build/api.js";

type Schemas = components["schemas"];

const url = process.env["WEFT_URL"] ?? "";
const secret = process.env["WEFT_SECRET"] ?? "";
const runId = process.argv[2] ?? "order-rpc";
const statuses: number[] = [];

const client: JSONRPCClient = new JSONRPCClient(async (payload) => {
  const res = await fetch(`${url}/v1/rpc`, {
    method: "POST",
    headers: { Authorization: `Bearer ${secret}`, "Content-Type": "application/json" },
    body: JSON.stringify(payload),
  });
  statuses.push(res.status);
  if (res.status === 200) client.receive(await res.json());
  else if (res.status !== 204) throw new Error(`status ${res.status}`);
});

async function failure(method: string, params?: object): Promise<{ code: number; data: Schemas["RPCProblem"] | undefined }> {
  try {
    await client.request(method, params);
  } catch (e) {
    if (e instanceof JSONRPCErrorException) return { code: e.code, data: e.data };
    throw e;
  }
  throw new Error(`${method} did not fail`);
}

const start = { workflowName: "checkout", runId, idempotencyKey: runId };
const created: Schemas["RunCreated"] = await client.request("runs.create", start);
const again: Schemas["RunCreated"] = await client.request("runs.create", start);
const batch = await client.requestAdvanced([
  { jsonrpc: "2.0", id: "a", method: "runs.get", params: { runId } },
  { jsonrpc: "2.0", id: 7, method: "runs.get", params: { runId: "none" } },
]);
client.notify("signals.send", { runId, name: "approved", payload: { receipt: "r1" }, signalId: "evt_1" });
const result: Schemas["RunResult"] = await client.request("runs.result", { runId, wait: 30 });
const sent: Schemas["SignalAccepted"] = await client.request("signals.send", { runId, name: "approved", payload: { receipt: "r1" }, signalId: "evt_1" });

const notFound = await failure("runs.get", { runId: "none" });
const invalid = await failure("runs.get", { runId, more: 1 });
const array = await failure("runs.get", [runId]);
const unknown = await failure("runs.destroy");
const conflict = await failure("runs.create", { ...start, workflowName: "echo" });
const terminal = await failure("runs.cancel", { runId });
const notConfigured = await failure("world.queue.publish", { queueName: "q", message: {} });

console.log(JSON.stringify({
  created: created.runId, same: JSON.stringify(created) === JSON.stringify(again),
  batch: batch.map((r) => [r.id, r.error?.code ?? 0]), result: result.result, accepted: sent.signalId,
  codes: [notFound, invalid, array, unknown, conflict, terminal, notConfigured].map((f) => f.code),
  statuses: [notFound, invalid, conflict, terminal, notConfigured].map((f) => f.data?.httpStatus),
  http: [...new Set(statuses)].sort(),
}));
