// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Opens the page of `report --format html` of processes on one GPU, in two sizes, light and dark, and prints what it says of the GPU:
//   node check_one_gpu.mjs PAGE FOLDER
// Writes pictures to FOLDER. Exit 77: there is no browser.
import { join } from "node:path";
import assert from "node:assert/strict";
import { close, launch, open } from "./page.mjs";

const [file, folder] = process.argv.slice(2);
const browser = await launch();
for (const [scheme, width, height] of [["light", 1280, 800], ["dark", 390, 844]]) {
	const page = await open(browser, file, { viewport: { width, height }, colorScheme: scheme });
	const said = await page.evaluate(() => {
		const text = (box, what) => [...box.querySelectorAll(what)].map(e => e.textContent);
		const box = document.getElementById("ranks-gpus");
		return { titles: text(box, "h2"), lines: [...box.querySelectorAll("li")].map(li => text(li, "b, span")), bars: [...box.querySelectorAll("meter")].map(m => [m.value, m.max, m.getBoundingClientRect().width]) };
	});
	assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "nothing is wider than the screen");
	assert.deepEqual(said.titles, ["3 processes on one GPU, at 2023-11-14 22:13:20.000 UTC"]);
	assert.deepEqual(said.lines, [
		["trainer, PID 1", "64.00 GiB allocated"], ["engine, PID 2", "32.00 GiB allocated"], ["late, PID 3", "not known: its recording begins later"],
	]);
	assert.deepEqual(said.bars.map(b => b.slice(0, 2)), [[2 ** 36, 139 * 2 ** 30], [2 ** 35, 139 * 2 ** 30]]);
	assert.ok(said.bars.every(b => b[2] > 60), `the bars are ${said.bars.map(b => b[2])} wide`);
	await page.screenshot({ path: join(folder, `one-gpu-${scheme}-${width}.png`), fullPage: width < 800 });
	await close(page);
}
await browser.close();
