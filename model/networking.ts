// Networking: which hosts a credential covers or an environment admits.
import { createHostSet, EVERY_HOST, type HostSet } from './host-pattern.ts';

/** Where a credential may be used. Patterns are normalised. */
export type CredentialNetworking =
  { readonly type: 'unrestricted' } | { readonly type: 'limited'; readonly allowedHosts: readonly string[] };

/** What sessions of an environment may be connected to. */
export type EnvironmentNetworking =
  | { readonly type: 'unrestricted' }
  | { readonly type: 'limited'; readonly allowedHosts: readonly string[]; readonly allowPackageManagers: boolean };

/** Public registries that `allow_package_managers` adds. */
export const PACKAGE_MANAGER_HOSTS: readonly string[] = [
  'registry.npmjs.org',
  'registry.yarnpkg.com',
  'pypi.org',
  'files.pythonhosted.org',
  'crates.io',
  'index.crates.io',
  'static.crates.io',
  'proxy.golang.org',
  'sum.golang.org',
  'repo.maven.apache.org',
  'repo1.maven.org',
  'plugins.gradle.org',
  'rubygems.org',
  'index.rubygems.org',
  'deb.debian.org',
  'security.debian.org',
];

/** Hosts that a credential covers. */
export function compileCoverage(networking: CredentialNetworking): HostSet {
  return networking.type === 'unrestricted' ? EVERY_HOST : createHostSet(networking.allowedHosts);
}

/** Hosts that an environment admits. */
export function compileAdmission(networking: EnvironmentNetworking): HostSet {
  if (networking.type === 'unrestricted') return EVERY_HOST;
  const extra = networking.allowPackageManagers ? PACKAGE_MANAGER_HOSTS : [];
  return createHostSet([...networking.allowedHosts, ...extra]);
}
