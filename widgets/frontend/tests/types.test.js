// What `tsc` does not refuse: values of the type `any`, which nothing is checked of, and comments that turn the check off.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import test from "node:test";

import { SyntaxKind } from "typescript/unstable/ast";
import { API, TypeFlags } from "typescript/unstable/sync";

const {
  AnyKeyword, BinaryExpression, BindingElement, ExpressionWithTypeArguments, FirstTypeNode, Identifier, ImportDeclaration, JSDocAllType, LastTypeNode,
  Parameter, PropertyAccessExpression,
} = SyntaxKind;

/** Nodes that say `any`, and names of values; those in types are none. */
function nodesOf(file) {
  const [said, names] = [[], []];
  const visit = (node, inType) => {
    if (node.kind === AnyKeyword || node.kind === JSDocAllType) said.push(node);
    const type = inType || (node.kind >= FirstTypeNode && node.kind <= LastTypeNode) || /^JS|^TypeParameter/.test(SyntaxKind[node.kind]);
    if (node.kind === Identifier && !type && hasType(node)) names.push(node);
    if (node.kind !== ImportDeclaration) node.forEachChild((child) => visit(child, type));
  };
  visit(file, false);
  return [said, names];
}

/** The checker knows no type of properties' names where they are assigned or taken apart, of parameters that are not used, of interfaces. */
function hasType(name) {
  const { parent } = name;
  if (parent.kind === BindingElement) return parent.propertyName !== name;
  if (parent.kind === Parameter) return name.text !== "_";
  if (parent.kind === ExpressionWithTypeArguments) return false;
  return !(parent.kind === PropertyAccessExpression && parent.parent.kind === BinaryExpression && parent.parent.left === parent);
}

const folder = fileURLToPath(new URL("..", import.meta.url));

test("nothing is of the type any, and nothing is left unchecked", () => {
  const api = new API({ cwd: folder });
  const [{ program, checker }] = api.updateSnapshot({ openProject: `${folder}tsconfig.json` }).getProjects();
  const files = program.getSourceFileNames().filter((name) => name.startsWith(`${folder}src/`)).map((name) => program.getSourceFile(name));
  const found = files.flatMap((file) => {
    const [said, names] = nodesOf(file);
    const types = checker.getTypeAtLocation(names);
    const untyped = [...said, ...names.filter((_, i) => types[i]?.flags & TypeFlags.Any)];
    const lines = untyped.map((node) => file.text.slice(0, node.getStart(file)).split("\n").length);
    return [...lines, ...file.text.matchAll(/@ts-\w+/g)].map((place) => `${file.fileName.slice(folder.length)}: ${place}`);
  });
  api.close();
  assert.ok(files.length > 60);
  assert.deepEqual(found, []);
});

test("no name that is shortened is one that Python or a page knows, or that is looked up as text", () => {
  const [, list] = readFileSync(`${folder}build.js`, "utf8").match(/const OURS = [^[]*\[([^\]]*)/);
  const ours = new Set([...list.matchAll(/"(\w+)"/g)].map(([, name]) => name));
  assert.ok(ours.size > 100);
  for (const file of readdirSync(`${folder}src`).filter((name) => name.endsWith(".js"))) {
    const source = readFileSync(`${folder}src/${file}`, "utf8");
    const texts = [...source.matchAll(/"(\w+)" in\b|toggle\("(\w+)"/g)];
    const fields = ["header.js", "messages.js", "traits.js"].includes(file) ? [...source.matchAll(/\b(\w+)\??\]?:|@property \{.*\} \[?(\w+)/g)] : [];
    const known = [...texts, ...fields].map(([, name, other]) => name ?? other);
    assert.deepEqual(known.filter((name) => ours.has(name)), [], file);
  }
});

test("the doors alone know the whole timeline; each part says what it needs of it", () => {
  const sources = readdirSync(`${folder}src`).filter((name) => readFileSync(`${folder}src/${name}`, "utf8").includes('"./timeline.js"'));
  assert.deepEqual(sources, ["index.js", "mount.js"]);
});
