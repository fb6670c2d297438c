use politely_core::signal::ScopeName;
use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    /// Whatever names a server states, and for whichever pages, the table stays small.
    #[test]
    fn the_table_is_bounded(
        said in proptest::collection::vec((0_u32..2_000, 0_u32..2_000, any::<bool>()), 0..1_500),
    ) {
        let (scopes, now) = (Scopes::default(), Timestamp::ZERO);
        let owner = Key::host("api.example.com").expect("a key");
        for (page, name, is_refused) in said {
            let url = Url::parse(&format!("https://api.example.com/p{page}x")).expect("a URL");
            let route = Route::of(&url, &Method::GET);
            let name = ScopeName::read(&format!("n{name}")).expect("a name");
            let key = route.key(&owner, &Scope::Resource(name)).expect("a key");
            let until = now + Duration::from_mins(1);
            scopes.note(&owner, &route, &key, until, is_refused, now);
        }
        for known in scopes.by_owner.lock().values() {
            prop_assert!(known.len() <= ROUTES_MAX);
            let refused = known.iter().filter(|known| known.is_refused);
            prop_assert!(refused.count() <= REFUSED_MAX + 1);
        }
    }
}
