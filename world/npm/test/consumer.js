// Takes messages of a deployment in a process of its own, and prints their attempts.
const [url, deploymentId, waitSeconds] = process.argv.slice(2);
const answer = await fetch(`${url}/v1/world/queue/receive`, {
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify({ deploymentId, max: 1, waitSeconds: Number(waitSeconds) }),
});
const { messages } = await answer.json();
console.log(JSON.stringify(messages.map(({ attempt }) => attempt)));
