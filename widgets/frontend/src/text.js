// Text on a canvas.

export const font = (scene, size, weight = "") => `${weight} ${size * scene.geometry.dpr}px ${scene.theme.font}`;

/** At most so many letters of a text, its end among them: kernels' names often differ there. */
export function shortened(text, most) {
  if (text.length <= most) return text;
  const end = Math.floor(most / 4);
  return `${text.slice(0, most - end - 1)}…${text.slice(-end)}`;
}

/** The text, or as much of its beginning as fits. */
export function fitted(ctx, text, room) {
  const width = ctx.measureText(text).width;
  if (width <= room) return text;
  const letters = Math.floor((text.length * room) / width) - 1;
  return letters > 0 ? `${text.slice(0, letters)}…` : "";
}
