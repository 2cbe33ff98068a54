// Node 20 does not have what a test of the runtime's own suite calls.
Promise.withResolvers ??= () => {
  let resolve, reject;
  const promise = new Promise((res, rej) => ([resolve, reject] = [res, rej]));
  return { promise, resolve, reject };
};
