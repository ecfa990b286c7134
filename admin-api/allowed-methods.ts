// Which methods a path has, to tell a wrong method (405) from a wrong path (404).

/** Patterns of the routes, as `/v1/vaults/:vault_id`, each with its methods. */
export interface MethodTable {
  add(pattern: string, methods: readonly string[]): void;
  /** Methods of the routes that match a path without its query; empty when none does. */
  methodsOf(path: string): readonly string[];
}

function matches(pattern: readonly string[], path: readonly string[]): boolean {
  return pattern.length === path.length && pattern.every((part, index) => part.startsWith(':') || part === path[index]);
}

export function createMethodTable(): MethodTable {
  const routes: { readonly parts: readonly string[]; readonly methods: readonly string[] }[] = [];
  return {
    add(pattern, methods) {
      routes.push({ parts: pattern.split('/'), methods });
    },
    methodsOf(path) {
      const parts = path.split('/');
      const found = routes.filter((route) => matches(route.parts, parts)).flatMap((route) => route.methods);
      return [...new Set(found)].sort();
    },
  };
}
