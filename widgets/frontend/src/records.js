// Objects whose keys are known, as pairs.

/**
 * `Object.entries` of an object that has no other keys than its type says.
 *
 * @type {<K extends string, V>(record: Partial<Record<K, V>>) => [K, V][]}
 */
export const entriesOf = Object.entries;
