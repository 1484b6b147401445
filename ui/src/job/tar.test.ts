import { expect, test } from "vitest";
import { onlyFile } from "./tar";

const BLOCK = 512;

/** A member as tar writes it: its header, its content, and zeros to the next block. */
function member(name: string, kind: string, content: string): Uint8Array<ArrayBuffer> {
  const body = new TextEncoder().encode(content);
  const whole = new Uint8Array(BLOCK + Math.ceil(body.length / BLOCK) * BLOCK);
  const write = (at: number, text: string) => whole.set(new TextEncoder().encode(text), at);
  write(0, name);
  write(124, `${body.length.toString(8).padStart(11, "0")}\0`);
  write(156, kind);
  whole.set(body, BLOCK);
  return whole;
}

const END = new Uint8Array(2 * BLOCK);

test("a file is taken out of its archive", async () => {
  const file = await onlyFile(new Blob([member("model.pt", "0", "weights"), END]));
  expect(await file?.text()).toBe("weights");
});

test("headers that only describe the file are passed over", async () => {
  const long = member("PaxHeaders/x", "x", "30 path=a name that is too long\n");
  const file = await onlyFile(new Blob([long, member("a", "0", "x".repeat(1000)), END]));
  expect(await file?.text()).toBe("x".repeat(1000));
});

test("an empty file is a file", async () => {
  expect((await onlyFile(new Blob([member("empty", "0", ""), END])))?.size).toBe(0);
});

test("a folder, an archive cut short and what is no archive hold no file", async () => {
  expect(await onlyFile(new Blob([member(".", "5", ""), END]))).toBeUndefined();
  const cut = member("model.pt", "0", "x".repeat(1000)).slice(0, 2 * BLOCK - 100);
  expect(await onlyFile(new Blob([cut]))).toBeUndefined();
  expect(await onlyFile(new Blob(["no archive"]))).toBeUndefined();
  expect(await onlyFile(new Blob([END]))).toBeUndefined();
});
