//! Options of every command (`--addr`, `--tls-ca`, `--bearer-file`, `--as`, `--output`, `--color`), and the client that they configure.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use leasehold::{Address, BearerTokenFile, Client, ClientBuilder, Endpoints, Error, TlsOptions, traceparent_from_env};
use serde::Serialize;

use crate::output::{CommandError, CommandOutput, document};
use crate::output_format::{self, ColorWhen, OutputFormat, OutputStyle};
use crate::profile::Profile;
use crate::styled_text::StyledText;

/// Options of every command
#[derive(clap::Args)]
pub struct GlobalArgs {
    /// Addresses of the servers, tried in order: HOST:PORT[,HOST:PORT...], https://HOST:PORT or unix:PATH
    /// [default: 127.0.0.1:7421]
    #[arg(
        long,
        global = true,
        env = "LEASEHOLD_ADDR",
        hide_env_values = true,
        value_name = "ADDR",
        help_heading = "Global options"
    )]
    addr: Option<String>,
    // The environment is read later: `serve` has flags of the same names, and must not inherit the certificate of a client.
    /// CA certificates that verify the servers (PEM); enables TLS [env: LEASEHOLD_TLS_CA]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    tls_ca: Option<PathBuf>,
    /// Certificate of this client (PEM) [env: LEASEHOLD_TLS_CERT]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    tls_cert: Option<PathBuf>,
    /// Private key of this client's certificate (PEM) [env: LEASEHOLD_TLS_KEY]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    tls_key: Option<PathBuf>,
    /// File with the bearer token of this client, read for each request [env: LEASEHOLD_BEARER_FILE]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    bearer_file: Option<PathBuf>,
    /// Profile with addresses and credentials, below ~/.config/leasehold; `leasehold init` and `leasehold ca issue` write
    /// profiles. The options above override it
    #[arg(
        long = "as",
        global = true,
        env = "LEASEHOLD_PROFILE",
        hide_env_values = true,
        value_name = "PROFILE",
        help_heading = "Global options"
    )]
    profile: Option<String>,
    /// Format of results: table, wide (more columns), json, yaml, or name (one name per line; refused by commands whose result has
    /// none). With json and yaml errors are documents too
    #[arg(
        short = 'o',
        long,
        global = true,
        value_enum,
        value_name = "FORMAT",
        hide_possible_values = true,
        help_heading = "Global options"
    )]
    output: Option<OutputFormat>,
    /// The same as `-o json`
    #[arg(long, global = true, help_heading = "Global options")]
    json: bool,
    /// Color text: always, never, or auto, which is on a terminal unless NO_COLOR is set or TERM is dumb [default: auto]
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value_t,
        hide_default_value = true,
        hide_possible_values = true,
        help_heading = "Global options"
    )]
    color: ColorWhen,
}

/// Options of commands that a standby may answer
#[derive(clap::Args)]
pub struct StandbyArgs {
    /// Allow a standby to answer if it has reached this journal position. Its answer may lag behind the leader; the command
    /// reports the position of the answer
    #[arg(long, value_name = "POSITION", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    standby: Option<u64>,
}

/// Default address of a server.
const DEFAULT_ADDR: &str = "127.0.0.1:7421";
/// Variable with the addresses of the servers.
pub const ADDR_VARIABLE: &str = "LEASEHOLD_ADDR";
/// Variables with the CA certificates, the certificate and the key of a client.
const TLS_VARIABLES: [&str; 3] = ["LEASEHOLD_TLS_CA", "LEASEHOLD_TLS_CERT", "LEASEHOLD_TLS_KEY"];

/// Variable with the file of a client's bearer token.
const BEARER_VARIABLE: &str = "LEASEHOLD_BEARER_FILE";

/// The servers and credentials of [`GlobalArgs::variables`], in a process that another one started.
pub fn endpoints_from_env() -> Option<Endpoints> {
    let endpoints = Endpoints::parse(&std::env::var(ADDR_VARIABLE).ok()?).ok()?;
    let bearer = path_from_env(BEARER_VARIABLE);
    let tls = tls_options(TLS_VARIABLES.map(path_from_env), bearer.is_some()).ok()?;
    with_credentials(endpoints, tls, bearer).ok()
}

fn path_from_env(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| value != OsStr::new("")).map(PathBuf::from)
}

/// All three files, or none. With a bearer token the CA certificates are enough.
fn tls_options(files: [Option<PathBuf>; 3], has_bearer: bool) -> Result<Option<TlsOptions>, Error> {
    match files {
        [None, None, None] => Ok(None),
        [Some(ca), None, None] if has_bearer => Ok(Some(TlsOptions::without_certificate(ca))),
        [Some(ca), Some(cert), Some(key)] => Ok(Some(TlsOptions::new(ca, cert, key))),
        [ca, cert, _] => {
            let missing = if ca.is_none() {
                "tls_ca"
            } else if cert.is_none() {
                "tls_cert"
            } else {
                "tls_key"
            };
            let message =
                format!("{missing} is missing; set tls_ca, tls_cert and tls_key together, or tls_ca and bearer_file");
            Err(Error::config(missing, message))
        }
    }
}

/// Checks the files before the first connection, if one on the network is possible.
fn with_credentials(
    mut endpoints: Endpoints,
    tls: Option<TlsOptions>,
    bearer: Option<PathBuf>,
) -> Result<Endpoints, Error> {
    let is_socket = |address: &Address| address.unix_path().is_some();
    if let Some(tls) = tls {
        if !endpoints.addresses().iter().all(is_socket) {
            tls.check()?;
        }
        endpoints = endpoints.with_tls(tls);
    }
    if let Some(file) = bearer {
        endpoints = endpoints.with_bearer(BearerTokenFile::new(file));
        endpoints.check_bearer()?;
    }
    Ok(endpoints)
}

/// A client whose requests belong to the trace of the variable `TRACEPARENT`, if it has one.
pub fn client_builder(endpoints: Endpoints) -> ClientBuilder {
    let builder = ClientBuilder::from(endpoints);
    match traceparent_from_env() {
        Some(trace) => builder.traceparent(trace),
        None => builder,
    }
}

impl GlobalArgs {
    /// Reads the profile, if there is one, and fills in what neither a flag nor the environment sets.
    pub fn apply_profile(&mut self) -> Result<(), Error> {
        let Some(name) = self.profile.as_deref().filter(|name| !name.is_empty()) else { return Ok(()) };
        let [tls_ca, tls_cert, tls_key] = self.tls_files();
        let mut explicit = Profile { addr: self.addr.take(), tls_ca, tls_cert, tls_key, bearer: self.bearer() };
        Profile::load(name)?.fill(&mut explicit);
        let Profile { addr, tls_ca, tls_cert, tls_key, bearer } = explicit;
        (self.addr, self.tls_ca, self.tls_cert, self.tls_key) = (addr, tls_ca, tls_cert, tls_key);
        self.bearer_file = bearer;
        Ok(())
    }

    /// Addresses from `--addr` or the environment.
    pub fn addr(&self) -> Option<&str> {
        self.addr.as_deref()
    }

    /// Addresses of the servers, or the default address.
    pub fn addr_or_default(&self) -> &str {
        self.addr().unwrap_or(DEFAULT_ADDR)
    }

    /// Addresses of the servers and the certificates to connect with.
    pub fn endpoints(&self) -> Result<Endpoints, Error> {
        with_credentials(Endpoints::parse(self.addr_or_default())?, self.tls()?, self.bearer())
    }

    /// The servers and credentials for one of the addresses alone.
    pub fn endpoints_at(&self, address: &Address) -> Result<Endpoints, Error> {
        with_credentials(Endpoints::parse(address.as_str())?, self.tls()?, self.bearer())
    }

    /// Certificates from the flags or the environment.
    pub fn tls(&self) -> Result<Option<TlsOptions>, Error> {
        tls_options(self.tls_files(), self.bearer().is_some())
    }

    /// Whether connections to servers on the network use TLS.
    pub fn uses_tls(&self) -> Result<bool, Error> {
        Ok(self.addr_or_default().contains("https://") || self.tls()?.is_some())
    }

    /// File of the bearer token from the flag or the environment.
    pub fn bearer(&self) -> Option<PathBuf> {
        self.bearer_file.clone().or_else(|| path_from_env(BEARER_VARIABLE))
    }

    fn tls_files(&self) -> [Option<PathBuf>; 3] {
        let flags = [&self.tls_ca, &self.tls_cert, &self.tls_key];
        let mut files =
            flags.into_iter().zip(TLS_VARIABLES).map(|(flag, name)| flag.clone().or_else(|| path_from_env(name)));
        std::array::from_fn(|_| files.next().flatten())
    }

    /// Variables that give another `leasehold` process the same servers and credentials.
    pub fn variables(&self) -> Result<Vec<(&'static str, OsString)>, Error> {
        let addr = (ADDR_VARIABLE, OsString::from(self.addr_or_default()));
        let files = self.tls()?.map(|TlsOptions { ca, cert, key }| [Some(ca), cert, key]).unwrap_or_default();
        let bearer = (BEARER_VARIABLE, self.bearer());
        let files = TLS_VARIABLES.into_iter().zip(files).chain([bearer]);
        let files = files.filter_map(|(name, file)| Some((name, file?.into_os_string())));
        Ok([addr].into_iter().chain(files).collect())
    }

    /// Runs one call against the servers.
    pub fn call<T>(&self, work: impl AsyncFnOnce(Client) -> Result<T, Error>) -> Result<T, CommandError> {
        self.with_client(async |client| work(client).await.map_err(CommandError::from))
    }

    /// Runs `work` with a client, for work that can fail without a stable code.
    pub fn with_client<T>(&self, work: impl AsyncFnOnce(Client) -> Result<T, CommandError>) -> Result<T, CommandError> {
        let endpoints = self.endpoints()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| CommandError::Other(format!("cannot start the runtime: {error}")))?;
        runtime.block_on(async { work(client_builder(endpoints).build()).await })
    }

    /// The format of results.
    pub fn format(&self) -> OutputFormat {
        if self.json { OutputFormat::Json } else { self.output.unwrap_or_default() }
    }

    /// Whether tables have more columns.
    pub fn is_wide(&self) -> bool {
        self.format() == OutputFormat::Wide
    }

    /// How everything is printed.
    pub fn style(&self) -> OutputStyle {
        let format = self.format();
        OutputStyle { format, has_color: format.is_text() && self.color.applies() }
    }

    /// Fails if the output options contradict each other or do not suit the command.
    pub fn check_output(&self, root: &mut clap::Command, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        output_format::check(root, matches, self.output, self.json)
    }

    /// Output as a document, or as text.
    pub fn output<B: Serialize, T: Into<StyledText>>(&self, body: &B, text: impl FnOnce() -> T) -> CommandOutput {
        let format = self.format();
        if format.is_document() { document(format, body).into() } else { text().into().into() }
    }

    /// Output as a document, as names, or as text. The command is one of those with names.
    pub fn listing<B: Serialize, T: Into<StyledText>>(
        &self,
        body: &B,
        names: impl IntoIterator<Item = String>,
        text: impl FnOnce() -> T,
    ) -> CommandOutput {
        if self.format() != OutputFormat::Name {
            return self.output(body, text);
        }
        // A name is on one line, whatever it contains.
        let names = names.into_iter().map(|name| StyledText::styled(&name, None));
        let text = StyledText::join(names, "\n");
        if text.is_empty() { CommandOutput::EMPTY } else { text.into() }
    }

    /// Replaces an empty table by a message on standard error. Documents stay.
    pub fn or_empty(&self, output: CommandOutput, is_empty: bool, message: impl FnOnce() -> String) -> CommandOutput {
        match is_empty && self.format().is_text() {
            true => output.without_text().with_note(Some(message())),
            false => output,
        }
    }

    /// Output of a command that succeeded and has no result.
    pub fn done(&self, text: String) -> CommandOutput {
        self.output(&serde_json::json!({ "done": true }), || text)
    }
}

impl StandbyArgs {
    /// A client that may query a standby, if that is allowed.
    pub fn apply(&self, client: Client) -> Client {
        match self.standby {
            Some(min_position) => client.allow_standby(min_position),
            None => client,
        }
    }

    /// The journal position of the last answer, if a standby was allowed to give it.
    pub fn note(&self, client: &Client) -> Option<String> {
        self.standby?;
        client.last_position().map(|position| format!("as of position {position}"))
    }
}
