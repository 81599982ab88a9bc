// Reads an AsyncAPI document, has the public parser judge it, and writes TypeScript models of it.
// Called by `make asyncapi-check` as: node models.mjs <document> <file to write>
import { readFileSync, writeFileSync } from "node:fs";
import { TypeScriptGenerator } from "@asyncapi/modelina";
import { Parser } from "@asyncapi/parser";

const [source, target] = process.argv.slice(2);
const text = readFileSync(source, "utf8");

const { document, diagnostics } = await new Parser().parse(text);
for (const each of diagnostics) {
  console.error(`${each.path.join(".")}: ${each.message}`);
}
if (!document || diagnostics.length > 0) {
  process.exit(1);
}
console.log(`@asyncapi/parser: a valid AsyncAPI ${document.version()} document`);

// The generator knows no version above 3.0.0, from which ours differs in nothing that it reads.
const lowered = text.replace(/^asyncapi: 3\.1\.0$/m, "asyncapi: 3.0.0");
console.log("@asyncapi/modelina: knows AsyncAPI up to 3.0.0, so it reads a copy that says so");
const generator = new TypeScriptGenerator({
  modelType: "interface",
  mapType: "record",
  rawPropertyNames: true,
});
const models = await generator.generate(lowered);
writeFileSync(target, models.map((each) => `export ${each.result.trim()}\n`).join("\n"));
console.log(`@asyncapi/modelina: wrote ${models.length} models`);
