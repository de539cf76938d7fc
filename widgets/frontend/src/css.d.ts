// What build.js puts in: a style sheet as a text, and which extension of JupyterLab belongs to the sources.
declare const EXTENSION: string;

declare module "*.css" {
  const style: string;
  export default style;
}
