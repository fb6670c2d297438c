//! The registrable domain of a host name.
//!
//! The functions of `psl` are generic: 100,000 lines of matches are compiled again in each crate
//! that calls them, and again for its tests. This crate compiles them once. Its profile has no
//! optimization, which a name that is looked up once per host does not need.

#![no_std]

use psl::Psl as _;

/// A registrable domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistrableDomain<'a> {
    /// The last labels of the name: a public suffix and the label before it.
    pub name: &'a str,
    /// Whether the suffix is on the list. Otherwise the suffix is the last label, which is the
    /// list's default rule.
    pub is_listed: bool,
}

/// Returns the registrable domain of a host name in lower case, as browsers see it. `None` for a
/// suffix itself.
///
/// ```
/// let shop = politely_suffix::registrable_domain("www.shop.co.uk").unwrap();
/// assert_eq!((shop.name, shop.is_listed), ("shop.co.uk", true));
/// assert_eq!(politely_suffix::registrable_domain("co.uk"), None);
/// ```
#[inline(never)]
pub fn registrable_domain(name: &str) -> Option<RegistrableDomain<'_>> {
    let domain = psl::List.domain(name.as_bytes())?;
    Some(RegistrableDomain {
        name: str::from_utf8(domain.as_bytes()).ok()?,
        is_listed: domain.suffix().is_known(),
    })
}
