// A style sheet is a text: build.js makes it one.
declare module "*.css" {
  const style: string;
  export default style;
}
