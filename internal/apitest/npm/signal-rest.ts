// Sends a signal by REST, and prints the answer.
import type { components } from "./build/api.js";

const body: components["schemas"]["SendSignal"] = { payload: { receipt: "r1" }, signalId: "evt_1" };
const res = await fetch(`${process.env["WEFT_URL"]}/v1/runs/${process.argv[2]}/signals/approved`, {
  method: "POST",
  headers: { Authorization: `Bearer ${process.env["WEFT_SECRET"]}`, "Content-Type": "application/json" },
  body: JSON.stringify(body),
});
if (!res.ok) throw new Error(await res.text());
console.log(await res.text());
