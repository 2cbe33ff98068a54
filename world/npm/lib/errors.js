/** The codes of 409 that say that what a call makes is there already, or cannot be any more. Runtimes go on after them. */
const isThere = new Set(['conflict', 'token_taken', 'run_terminal', 'run_not_supported']);

/**
 * The classes of errors that a runtime knows.
 * @typedef {typeof import('@workflow/errors')} Classes
 */

/**
 * What the server answers to a call that it refuses.
 * @typedef {{ code: string, message: string, retryAfter?: number }} Problem
 */

/**
 * What a call was about, so that its error can say so.
 * @typedef {{ runId?: string | null, hookId?: string, token?: string, eventType?: string, spec: number }} Subject
 */

/**
 * Returns the error that a runtime expects for an answer that refuses a call.
 * @param {Classes} classes
 * @param {number} status of HTTP
 * @param {Problem} problem
 * @param {Subject} about
 * @param {string} url
 * @returns {Error}
 */
export function refusal(classes, status, problem, about, url) {
  const { code, message, retryAfter } = problem;
  switch (status) {
    case 401:
      return new classes.WorkflowWorldError(`The Weft server at ${new URL(url).origin} refuses the token, which is that of WEFT_WORLD_TOKEN: ${message}`, { status, code, url });
    case 404:
      if (message.startsWith('Run ') && about.runId) return new classes.WorkflowRunNotFoundError(about.runId);
      if (message.startsWith('Hook ')) return new classes.HookNotFoundError(about.token ?? about.hookId ?? '');
      break;
    case 409: {
      if (code === 'run_terminal' && !creates(about.eventType)) {
        return known(new classes.RunExpiredError(message), status, code);
      }
      const needed = /needs spec version (\d+)/.exec(message);
      if (code === 'run_not_supported' && needed) {
        return new classes.RunNotSupportedError(Number(needed[1]), about.spec);
      }
      if (isThere.has(code)) return known(new classes.EntityConflictError(message), status, code);
      break;
    }
    case 412:
      return known(new classes.PreconditionFailedError(message), status, code);
    case 425:
      return known(new classes.TooEarlyError(message, { retryAfter: Math.ceil(retryAfter ?? 1) }), status, code);
    case 429:
      return known(new classes.ThrottleError(message, { retryAfter }), status, code);
  }
  return new classes.WorkflowWorldError(message, { status, code, retryAfter, url });
}

/**
 * Reports whether a type of event, on a run that has ended, is a conflict. Runtimes take other types for late.
 * @param {string | undefined} eventType
 */
function creates(eventType) {
  return eventType !== 'run_started' && !/^step_(started|completed|failed|retrying)$/.test(eventType ?? '');
}

/**
 * @template {Error} T
 * @param {T} error
 * @param {number} status
 * @param {string} code
 * @returns {T}
 */
function known(error, status, code) {
  return Object.assign(error, { status, code });
}

/**
 * Returns the error of a call that got no answer. Runtimes try again later.
 * @param {Classes} classes
 * @param {string} what
 * @param {unknown} cause
 * @param {string} url
 */
export function unanswered(classes, what, cause, url) {
  const why = cause instanceof Error ? cause.message || String(/** @type {any} */ (cause).code) : String(cause);
  return new classes.WorkflowWorldError(`The Weft server at ${new URL(url).origin} has not answered ${what}: ${why}`, {
    code: 'TRANSPORT',
    url,
    cause,
  });
}
