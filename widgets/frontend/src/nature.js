// What times are, if they were not measured: simulated, or predicted from a measured trace. Wherever they are shown, the word stands beside them.

/** @import { Group } from "./model.js" */

/**
 * "simulated", "predicted", or "" for measured times.
 *
 * @param {Pick<Group, "device" | "recorder">} group
 */
export function natureOf({ device, recorder }) {
  if (device.kind !== "simulated") return "";
  return recorder === "prediction" ? "predicted" : "simulated";
}

/**
 * The same for an axis that several groups share: "partly predicted" where others were measured.
 *
 * @param {Pick<Group, "device" | "recorder">[]} groups
 */
export function natureOfAxis(groups) {
  const words = [...new Set(groups.map(natureOf))];
  if (words.length < 2) return words[0] ?? "";
  return words.includes("") ? `partly ${words.filter(Boolean).join(" or ")}` : words.join(" or ");
}

/**
 * What a tooltip adds to where a span lies.
 *
 * @param {Group} group
 */
export const timeWords = (group) => (natureOf(group) ? ` · ${natureOf(group)} time` : "");
