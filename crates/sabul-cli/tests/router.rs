//! `sabul router` as far as it needs no privileges: what is refused before anything is made.

mod common;

use common::{expect_code, run, sabul, stderr};

#[test]
fn what_cannot_be_is_refused_with_what_to_do_and_code_2() {
    let both = ["--device", "site0", "--device", "site1"];
    for (arguments, words) in [
        (&[&both[..], &["--rate-mbps", "0"]].concat()[..], "nothing to share out"),
        (&[&both[..], &["--rate-mbps=-3"]].concat()[..], "0.1 to 100000"),
        (&[&both[..], &["--rate-mbps", "9", "--share", "99"]].concat()[..], "5 to 95"),
        (&[&both[..], &["--rate-mbps", "9", "--param", "eta=7"]].concat()[..], "eta"),
        (&[&both[..], &["--rate-mbps", "9", "--algorithm", "cubic"]].concat()[..], "jetmax"),
        (&[&both[..], &["--rate-mbps", "9", "--queue", "soon"]].concat()[..], "100ms"),
        (&["--device", "site0", "--rate-mbps", "9"][..], "given twice"),
    ] {
        let output = run(sabul().arg("router").args(arguments));
        expect_code(&output, 2);
        assert!(stderr(&output).contains(words), "{arguments:?}: {}", stderr(&output));
    }
}
