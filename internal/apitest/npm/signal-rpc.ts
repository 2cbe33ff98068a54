// Sends a signal by JSON-RPC, and prints the answer.
import { JSONRPCClient } from "json-rpc-2.0";

const client: JSONRPCClient = new JSONRPCClient(async (payload) => {
  const res = await fetch(`${process.env["WEFT_URL"]}/v1/rpc`, {
    method: "POST",
    headers: { Authorization: `Bearer ${process.env["WEFT_SECRET"]}`, "Content-Type": "application/json" },
    body: JSON.stringify(payload),
  });
  client.receive(await res.json());
});
const params = { runId: process.argv[2], name: "approved", payload: { receipt: "r1" }, signalId: "evt_1" };
console.log(JSON.stringify(await client.request("signals.send", params)));
