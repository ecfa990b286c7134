// Lint rules: types are used where they find bugs, and the house style's limits are numbers here.
import tseslint from 'typescript-eslint';

const processHomes = [
  { object: 'process', property: 'env', message: 'Only daemon/config.ts reads the environment.' },
  { object: 'process', property: 'exit', message: 'Only cli/ ends the process.' },
];
const [envHome, exitHome] = processHomes;
const namedProcessImport = {
  name: 'node:process',
  importNames: ['env', 'exit'],
  message: 'Use process from its home.',
};

export default tseslint.config(
  { ignores: ['node_modules/', 'dist/', '.tap/', 'coverage/', 'data/', 'test/vectors/', 'bench/results/'] },
  { linterOptions: { reportUnusedDisableDirectives: 'error' } },
  {
    files: ['**/*.ts'],
    extends: [tseslint.configs.recommendedTypeChecked],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      // Interfaces are asynchronous even where today's implementation answers at once.
      '@typescript-eslint/require-await': 'off',
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_', varsIgnorePattern: '^_' }],
      '@typescript-eslint/no-floating-promises': [
        'error',
        { allowForKnownSafeCalls: [{ from: 'package', package: 'tap', name: ['test', 't'] }] },
      ],
      '@typescript-eslint/no-misused-promises': 'error',
      '@typescript-eslint/switch-exhaustiveness-check': [
        'error',
        { considerDefaultExhaustiveForUnions: true, requireDefaultForNonUnion: true },
      ],
      '@typescript-eslint/consistent-type-imports': 'error',
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      '@typescript-eslint/prefer-readonly': 'error',
      '@typescript-eslint/return-await': 'error',
      eqeqeq: 'error',
      'prefer-const': 'error',
      'no-console': 'error',
      complexity: ['error', 15],
      'max-params': ['error', 3],
      'max-lines': ['error', { max: 300 }],
      'max-lines-per-function': ['error', { max: 70, skipBlankLines: true, skipComments: true }],
      'no-restricted-imports': ['error', { paths: [namedProcessImport] }],
      'no-restricted-properties': ['error', ...processHomes],
      'no-restricted-syntax': ['error', { selector: 'ExportDefaultDeclaration', message: 'Name what is exported.' }],
    },
  },
  { files: ['daemon/config.ts'], rules: { 'no-restricted-properties': ['error', exitHome] } },
  { files: ['cli/**'], rules: { 'no-console': 'off', 'no-restricted-properties': ['error', envHome] } },
  {
    files: ['test/**', 'bench/**', 'scripts/**'],
    rules: {
      'no-console': 'off',
      'no-restricted-properties': 'off',
      'no-restricted-imports': 'off',
      'max-lines': 'off',
      'max-lines-per-function': 'off',
    },
  },
  {
    // Tests look into JSON and library internals that have no types.
    files: ['test/**'],
    rules: {
      '@typescript-eslint/no-unsafe-argument': 'off',
      '@typescript-eslint/no-unsafe-assignment': 'off',
      '@typescript-eslint/no-unsafe-call': 'off',
      '@typescript-eslint/no-unsafe-member-access': 'off',
      '@typescript-eslint/no-unsafe-return': 'off',
    },
  },
  { files: ['**/*.mjs'], extends: [tseslint.configs.recommended] },
);
