// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Takes a picture of a page as a browser shows it:
//   node picture.mjs FILE_OR_URL PICTURE.png WIDTHxHEIGHT [SCRIPT]
// SCRIPT runs in the page first; a string that it returns is an expression to wait for.
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { launch } from "./page.mjs";

const [target, picture, size, script] = process.argv.slice(2), [width, height] = (size ?? "").split("x").map(Number);
if (!width || !height) {
	console.error("usage: node picture.mjs FILE_OR_URL PICTURE.png WIDTHxHEIGHT [SCRIPT]");
	process.exit(64);
}
const browser = await launch();
const page = await (await browser.newContext({ viewport: { width, height }, colorScheme: "light" })).newPage();
await page.goto(/^https?:/.test(target) ? target : pathToFileURL(resolve(target)).href);
await page.waitForFunction(() => document.body.dataset.state === "ready");
const wanted = script ? await page.evaluate(script) : null;
// page.waitForFunction() takes no text where a page allows no eval().
for (const end = Date.now() + 60000; wanted && !await page.evaluate(wanted); await page.waitForTimeout(100))
	if (Date.now() > end)
		throw new Error(`not seen within 60 s: ${wanted}`);
await page.waitForTimeout(500);
await page.screenshot({ path: picture });
await browser.close();
