// Patterns of a .dockerignore, as Docker reads them: Go's filepath.Match, `**` for any number of folders, `!` to take back.

interface Pattern {
  readonly expression: RegExp;
  readonly excludes: boolean;
}

const SPECIAL = /[.+()|{}$^\\]/g;
// A class stays as it is; the others are taken from the longest to the shortest.
const TOKEN = /\[[^\]]*\]|\*\*\/|\*\*|\*|\?|[^[*?]+|\[/g;

function translate(token: string): string {
  switch (token) {
    case '**/':
      return '(?:.*/)?';
    case '**':
      return '.*';
    case '*':
      return '[^/]*';
    case '?':
      return '[^/]';
    default:
      return token.startsWith('[') && token.length > 1 ? token : token.replace(SPECIAL, String.raw`\$&`);
  }
}

function compile(line: string): Pattern {
  const excludes = !line.startsWith('!');
  const glob = line.slice(excludes ? 0 : 1).replace(/^\.?\/+|\/+$/g, '');
  const source = [...glob.matchAll(TOKEN)].map(([token]) => translate(token)).join('');
  // A folder that matches takes all that lies below it along.
  return { expression: new RegExp(`^${source}(?:/.*)?$`, 'u'), excludes };
}

/** Whether a path (relative to the build's folder, with slashes) is kept away from the build: the last match decides. */
export function createDockerIgnore(text: string): (path: string) => boolean {
  const lines = text.split('\n').map((line) => line.trim());
  const patterns = lines.filter((line) => line !== '' && !line.startsWith('#')).map(compile);
  return (path) => patterns.findLast(({ expression }) => expression.test(path))?.excludes ?? false;
}
