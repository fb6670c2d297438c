fn main() {
    let a: Vec<String> = std::env::args().collect();
    for s in politely_sim::generate::generate(politely_sim::generate::TRAIN_SEED, 200) {
        if s.name.contains(&a[1]) {
            println!("{}", serde_json::to_string(&s).unwrap());
        }
    }
}
