//! `leasehold fence http --seal-keys`: forged tokens do not reach the service, and changed keys count without a restart (A8).

use std::time::{Duration, Instant};

use leasehold_fence::SealKeys;
use leasehold_fence::conformance::{forged_tokens, seal_keys, sealed_token};
use leasehold_seal::SealKey;

use crate::process_faults::run;
use crate::proxy::{ProxySetup, Service};
use crate::support::TEST_TIMEOUT;

pub fn forged() {
    run(async {
        let service = Service::start();
        let mut setup = ProxySetup::new(&[]);
        let file = setup.dir.path().join("seal-keys.json");
        std::fs::write(&file, seal_keys().to_json()).expect("written");
        setup.flags = vec!["--seal-keys".to_owned(), file.display().to_string()];
        let proxy = setup.start(&service.address);
        let write =
            async |token: &str, value: &str| proxy.client.write(token, "/now", value).await.expect("it answers");
        assert_eq!(write(&sealed_token(40), "genuine").await.code(), "OK");
        for (what, text, reason) in forged_tokens(50) {
            let refused = write(&text, "forged").await;
            let problem = refused.json();
            assert_eq!((refused.code().as_str(), &problem["reason"]), ("TOKEN_INVALID", &reason.into()), "{what}");
            let claimed = proxy.client.claim(&text).await;
            assert_eq!(claimed.json()["reason"], reason, "{what}");
        }
        assert_eq!(service.applied().await, [(40, "genuine".to_owned())]);
        assert_eq!(proxy.mark().await, 40);
        let metrics = proxy.admin.get("/metrics").await;
        assert!(metrics.text().contains("\"unverified\""), "{}", metrics.text());

        // The key is withdrawn: within seconds, and without a restart.
        let other = SealKey::generate(0).expect("a key");
        std::fs::write(&file, "not keys").expect("an invalid file changes nothing");
        let line = proxy.process.stderr().wait_for("seal keys unchanged, because they cannot be loaded: ");
        assert!(line.contains("seal-keys.json") && !line.contains("Coded("), "a sentence: {line}");
        std::fs::write(&file, SealKeys::new([other.public()]).expect("one key").to_json()).expect("written");
        let start = Instant::now();
        while write(&sealed_token(40), "withdrawn").await.code() == "OK" {
            assert!(start.elapsed() < TEST_TIMEOUT, "the keys were not read again");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let refused = write(&sealed_token(41), "withdrawn").await;
        assert_eq!(refused.json()["reason"], "unknown_key");
        let (code, _) = proxy.stop();
        assert_eq!(code, Some(0));
    });
}

pub fn invalid_keys() {
    let setup = ProxySetup::new(&[]);
    for (name, text, expected) in
        [("empty.json", SealKeys::default().to_json(), "has no key"), ("wrong.json", "{".to_owned(), "not a key file")]
    {
        let file = setup.dir.path().join(name);
        std::fs::write(&file, text).expect("written");
        let mut args = setup.start_args("127.0.0.1:1");
        args.extend(["--seal-keys".to_owned(), file.display().to_string()]);
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_leasehold")).args(&args).output().expect("it runs");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(expected), "{error}");
        assert!(!setup.marks().exists(), "nothing was armed");
    }
}
