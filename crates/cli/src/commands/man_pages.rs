//! `leasehold man-pages`: writes the manual pages of all commands, for packages.

use std::path::PathBuf;

use clap::CommandFactory;

use crate::output::{CommandError, CommandOutput, CommandResult};

/// Write the manual pages of all commands to a directory
#[derive(clap::Args)]
#[command(hide = true, after_help = "Example:\n  leasehold man-pages /usr/local/share/man/man1")]
pub struct Args {
    /// Directory, which must exist
    directory: PathBuf,
}

pub fn run(args: &Args) -> CommandResult {
    clap_mangen::generate_to(crate::Args::command(), &args.directory).map_err(|error| {
        CommandError::Other(format!("cannot write manual pages to {}: {error}", args.directory.display()))
    })?;
    Ok(CommandOutput::EMPTY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_visible_command_has_a_page_with_its_synopsis_and_its_options() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        run(&Args { directory: folder.path().to_owned() }).expect("the directory is writable");
        let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect("the page was written");
        let (root, check, serve) = (page("leasehold.1"), page("leasehold-charter-check.1"), page("leasehold-serve.1"));
        assert!(root.contains("leasehold\\-serve(1)"), "{root}");
        assert!(check.contains("\\fBleasehold charter check\\fR"), "{check}");
        assert!(serve.contains("\\-\\-max\\-ttl"), "{serve}");
        let pages = std::fs::read_dir(folder.path()).expect("the directory is readable").count();
        assert!(pages > 60, "only {pages} pages");
        assert!(!folder.path().join("leasehold-man-pages.1").exists(), "hidden commands have no page");
    }
}
