use politely_core::Rng;
use politely_core::config::{Config, Limits};
use politely_core::control::LawConfig;
use politely_sim::generate::*;
use politely_sim::polite::Polite;
use politely_sim::*;
use std::sync::atomic::{AtomicUsize, Ordering};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let law = &args[1];
    let scenarios: Vec<Scenario> = if args[2].ends_with(".json") {
        Scenario::read(&std::fs::read_to_string(&args[2]).unwrap()).unwrap()
    } else if args[2] == "train" {
        generate(TRAIN_SEED, 200)
    } else {
        gen_random(args[2].parse().unwrap())
    };
    let only = args.get(3).cloned().unwrap_or_default();
    let scenarios: Vec<_> = scenarios
        .into_iter()
        .filter(|s| s.name.contains(&only))
        .collect();
    let config = config(law);
    let verbose = std::env::var("V").is_ok();
    let next = AtomicUsize::new(0);
    let results = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(sc) = scenarios.get(i) else { break };
                    let trace = run(sc, 1, false, |_| {
                        let p = Polite::new(config.clone(), politely_core::Timestamp::ZERO);
                        if verbose {
                            Box::new(Verbose(p, String::new())) as Box<dyn Client>
                        } else {
                            Box::new(p)
                        }
                    });
                    results.lock().unwrap().push((i, score(sc, law, 1, &trace)));
                }
            });
        }
    });
    let mut r = results.into_inner().unwrap();
    r.sort_by_key(|x| x.0);
    let show = |s: &Score| {
        println!(
            "{:44} util {:6.2} ref {:5.2}% n {:5} worst {:3} t90 {:6.0} steady {:6.2} {:5.2}% over {:4.1} p50 {:5.0} infl {:.2} down {} hold {} blk {}",
            s.scenario,
            s.utilisation * 100.,
            s.refused_share * 100.,
            s.refused,
            s.refused_worst_minute,
            s.t90_s.unwrap_or(-1.),
            s.steady_utilisation.unwrap_or(0.) * 100.,
            s.steady_refused_share.unwrap_or(0.) * 100.,
            s.overshoot_1s,
            s.latency_p50_ms,
            s.latency_inflation,
            s.into_outage,
            s.into_hold,
            s.blocked
        )
    };
    if args.len() > 3 || scenarios.len() < 40 {
        for (_, s) in &r {
            show(s);
        }
    }
    let q = |mut v: Vec<f64>, q: f64| {
        v.sort_by(f64::total_cmp);
        v[((v.len() as f64 * q) as usize).min(v.len() - 1)]
    };
    let n = r.len() as f64;
    let u: Vec<f64> = r.iter().map(|x| x.1.utilisation * 100.).collect();
    let f: Vec<f64> = r.iter().map(|x| x.1.refused_share * 100.).collect();
    let w: Vec<f64> = r.iter().map(|x| x.1.refused_worst_minute as f64).collect();
    let ok = r
        .iter()
        .filter(|x| {
            x.1.steady_utilisation.unwrap_or(0.) >= 0.95
                && x.1.steady_refused_share.unwrap_or(1.) <= 0.005
        })
        .count();
    println!(
        "n {n} util median {:.2} p10 {:.2} worst {:.1} | refused median {:.3} p90 {:.3} worst {:.2} | steady ok {:.1}% | worst minute p95 {}",
        q(u.clone(), 0.5),
        q(u.clone(), 0.1),
        q(u.clone(), 0.),
        q(f.clone(), 0.5),
        q(f.clone(), 0.9),
        q(f.clone(), 1.),
        ok as f64 / n * 100.,
        q(w, 0.95)
    );
    if scenarios.len() >= 40 {
        r.sort_by(|a, b| {
            a.1.steady_utilisation
                .unwrap_or(0.)
                .total_cmp(&b.1.steady_utilisation.unwrap_or(0.))
        });
        println!("worst steady utilisation");
        for (_, s) in r.iter().take(50) {
            show(s);
        }
        r.sort_by(|a, b| b.1.refused_share.total_cmp(&a.1.refused_share));
        println!("worst refused");
        for (_, s) in r.iter().take(14) {
            show(s);
        }
    }
}
fn config(law: &str) -> Config {
    let api = Config::api();
    Config {
        law: law.parse::<LawConfig>().unwrap(),
        limits: Limits {
            in_flight: 64,
            ..api.limits
        },
        ..api
    }
}
fn gen_random(count: usize) -> Vec<Scenario> {
    (0..count).map(|i| {
        let mut g = Rng::new(7_000_000 + i as u64); g.next_u64();
        let kind = ["tb","tb","fw","fw","sl"][(g.unit()*5.) as usize];
        let l = (g.between((0.2f64).ln(), (50f64).ln())).exp();
        let svc = (g.between((0.03f64).ln(), 0.)).exp(); let cv = g.between(0.1, 0.8);
        let w = [1.,5.,10.,30.,60.,60.,300.,7.,45.][(g.unit()*9.) as usize];
        let n = (l*w).round().max(2.0);
        let b = [1.,l,5.*l,10.][(g.unit()*4.) as usize].round().max(1.0);
        let al = g.unit() < 0.5;
        let (limit, name) = match kind {
            "tb" => (format!(r#"{{"kind":"token_bucket","rate":{l:.4},"burst":{b}}}"#), format!("tb L={l:.2} B={b}")),
            "fw" => (format!(r#"{{"kind":"fixed_window","count":{n},"window_s":{w},"aligned":{al}}}"#), format!("fw {n}/{w}s L={:.2} {}", n/w, if al {"al"} else {"fh"})),
            _ => (format!(r#"{{"kind":"sliding_log","count":{n},"window_s":{w}}}"#), format!("sl {n}/{w}s L={:.2}", n/w)),
        };
        let l = if kind == "tb" { l } else { n / w };
        let d = (3000. / l).clamp(1800., 7200.);
        let json = format!(r#"[{{"name":"{i:03} {name} svc={svc:.2}","duration_s":{d},"demand":{{"kind":"greedy","connections":64}},"rtt_ms":50,"service":{{"mean_ms":{},"cv":{cv}}},"limit":{limit}}}]"#, svc*1000.);
        Scenario::read(&json).unwrap().remove(0)
    }).collect()
}

struct Verbose(Polite, String);
impl Client for Verbose {
    fn ask(&mut self, now: politely_core::Timestamp) -> Answer {
        self.0.ask(now)
    }
    fn hear(&mut self, now: politely_core::Timestamp, reply: &Reply, rng: &mut Rng) {
        self.0.hear(now, reply, rng);
        let d = format!("{:?}", self.0.host());
        let d = d[d.find("law: ").unwrap()..].to_string();
        let cut = |a: &str, b: &str| {
            d.find(a)
                .map(|i| {
                    let e = d[i..].find(b).map_or(d.len(), |e| i + e);
                    d[i..e].to_string()
                })
                .unwrap_or_default()
        };
        let st = format!(
            "{} {}",
            cut("stage: ", ", ceiling"),
            cut("ceiling:", ", stage_began")
        );
        if reply.status != 200 || st != self.1 {
            println!(
                "{now} sent {} {} {} | {} | {} | {} | {}",
                reply.sent,
                reply.status,
                cut("stage: ", ", stage_began"),
                cut("low:", ", anchor:"),
                cut("bank:", ", strikes"),
                cut("window: ", ", queue"),
                cut("cap:", ", low")
            );
            self.1 = st;
        }
    }
}
