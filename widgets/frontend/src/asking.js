// Questions to the notebook's kernel, and what it answers.

/** @import { Answers, Ask, Block, Questions, ToBrowser } from "./messages.js" */

/** @typedef {{ [Q in keyof Questions]: { type: Q, id: string } & Questions[Q] }[keyof Questions]} Asked */

/** @typedef {Error & { refused?: boolean }} Refusal what Python refuses it refuses again; other errors may pass */

const LATE_MS = 60_000;

/**
 * `ask` promises the answer to a question; `answered` takes a message with an answer, and its block.
 *
 * @param {(question: Asked) => void} send
 */
export function questionsBy(send) {
  /** @type {Map<string, (header: ToBrowser["answer"]["header"], block: Block) => void>} */
  const asked = new Map();
  /** @type {Ask} */
  const ask = (question) => new Promise((resolve, reject) => {
    const id = `${Math.random()}`;
    const close = () => {
      clearTimeout(late);
      asked.delete(id);
    };
    // A kernel that runs a cell tells the critical paths when it is free, as it tells the spans.
    const late = question.type === "paths" ? undefined : setTimeout(() => {
      close();
      reject(new Error("the kernel is busy, or gone"));
    }, LATE_MS);
    asked.set(id, (header, block) => {
      close();
      if ("refused" in header) reject(Object.assign(new Error(header.refused), { refused: true }));
      else resolve({ header: /** @type {Answers[typeof question.type]} */ (header), block });
    });
    send(/** @type {Asked} */ (/** @type {unknown} */ ({ ...question, id })));
  });
  /**
   * @param {Pick<ToBrowser["answer"], "id" | "header">} message
   * @param {Block} block
   */
  const answered = ({ id, header }, block) => asked.get(id)?.(header, block);
  return { ask, answered };
}
