/** The file in a tar stream of one file, as the head sends outputs. */

const BLOCK = 512;
const NAME_BYTES = 100;
const SIZE_AT = 124;
const SIZE_BYTES = 12;
const TYPE_AT = 156;
/** Headers that only describe the next member: of pax, and of GNU's long names. */
const DESCRIBES = new Set(["x", "g", "L", "K"]);
const FILES = new Set(["0", "\0"]);

const textOf = (bytes: Uint8Array): string => String.fromCharCode(...bytes);

/** The first member of the archive without copying it; undefined where that is no file, or a file
 * whose size does not stand in its header. */
export async function onlyFile(archive: Blob): Promise<Blob | undefined> {
  for (let at = 0; at + BLOCK <= archive.size; ) {
    const header = new Uint8Array(await archive.slice(at, at + BLOCK).arrayBuffer());
    const kind = textOf(header.subarray(TYPE_AT, TYPE_AT + 1));
    const size = Number.parseInt(textOf(header.subarray(SIZE_AT, SIZE_AT + SIZE_BYTES)), 8);
    if (Number.isNaN(size) || header.subarray(0, NAME_BYTES).every((one) => one === 0)) return;
    const begin = at + BLOCK;
    if (FILES.has(kind))
      return begin + size <= archive.size ? archive.slice(begin, begin + size) : undefined;
    if (!DESCRIBES.has(kind)) return;
    at = begin + Math.ceil(size / BLOCK) * BLOCK;
  }
  return undefined;
}
