// Questions to the notebook's kernel, and what it answers.

const LATE_MS = 60_000;

/** @returns {{ask, answered}} `ask(question)` promises {header, block}; `answered` takes a message with an answer, and its block */
export function questionsBy(send) {
  const asked = new Map();
  const ask = (question) => new Promise((resolve, reject) => {
    const id = `${Math.random()}`;
    const close = () => {
      clearTimeout(late);
      asked.delete(id);
    };
    // A kernel that runs a cell tells the critical paths when it is free, as it tells the spans.
    const late = question.type !== "paths" && setTimeout(() => {
      close();
      reject(new Error("the kernel is busy, or gone"));
    }, LATE_MS);
    asked.set(id, (header, block) => {
      close();
      const { refused } = header;
      if (refused) reject(Object.assign(new Error(refused), { refused: true }));
      else resolve({ header, block });
    });
    send({ ...question, id });
  });
  return { ask, answered: ({ id, header }, block) => asked.get(id)?.(header, block) };
}
