//! Who may do what, seen by whom: the options of `serve` about users, TLS and secrets.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use inbloom::SecretKey;
use inbloom_server::secret::{Missing, secret_in};
use inbloom_server::{Listeners, Tls, Users, persist, users};

use crate::filter_file::KeyArgs;
use crate::output::problem;

#[derive(clap::Args)]
#[command(next_help_heading = "Access")]
pub struct AccessArgs {
    /// Password for AUTH and HELLO; safer in the environment variable
    #[arg(long, value_name = "PASSWORD", env = "INBLOOM_PASSWORD", hide_env_values = true)]
    pub password: Option<String>,

    /// File of users, one per line: NAME ROLE PASSWORD
    ///
    /// ROLE is read-only, read-write, admin or off. PASSWORD is sha256:HEX, password:TEXT or nopass.
    /// Lines that begin with # are comments. A client is the user 'default' before AUTH; without a
    /// line that user is off. Only the owner may read the file (chmod 600).
    #[arg(long, value_name = "FILE", env = "INBLOOM_USERS")]
    pub users: Option<PathBuf>,

    /// Serve clients of other machines even without a password
    #[arg(long)]
    pub no_protected_mode: bool,

    /// Certificate chain of the server in PEM; --listen then speaks TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Second address, with TLS; --listen then stays without TLS
    #[arg(long, value_name = "ADDRESS", requires = "tls_cert")]
    pub tls_listen: Option<String>,

    /// Hash keys with a secret key (SipHash-1-3), so that attackers cannot craft false positives;
    /// the key comes from --key-file, or is kept in the data folder
    #[arg(long)]
    keyed: bool,

    #[command(flatten)]
    key: KeyArgs,
}

impl AccessArgs {
    /// Those of --users.
    pub fn users(&self) -> Result<Users> {
        let Some(path) = &self.users else { return Ok(Users::default()) };
        let users = Users::load(path)?;
        let default = users.get(users::DEFAULT.as_bytes(), "");
        ensure!(
            self.password.is_none() || default.is_none_or(|user| user.is_open()),
            problem(
                format!(
                    "--password is for the user \"default\", which {} turns off or gives another \
                     password",
                    path.display()
                ),
                "leave one of them out"
            )
        );
        Ok(users)
    }

    /// The secret under which keys are hashed, which a data directory may hold.
    pub fn key(&self, dir: Option<&Path>) -> Result<Option<SecretKey>> {
        if let Some(key) = self.key.key()? {
            return Ok(Some(key));
        }
        match dir {
            _ if !self.keyed => Ok(None),
            Some(dir) => {
                let is_new = !persist::is_in_use(dir);
                let missing = if is_new { Missing::Made } else { Missing::Refused };
                Ok(Some(secret_in(dir, missing)?))
            }
            None => bail!(problem(
                "--keyed needs a secret key that outlives the server",
                "pass --dir FOLDER, where one is created and kept, or --key-file FILE with the \
                 output of 'openssl rand -hex 16'"
            )),
        }
    }

    /// What listens where. `bind` opens the second address, if there is one.
    pub fn listeners(
        &self,
        listener: TcpListener,
        bind: impl FnOnce(&str) -> Result<TcpListener>,
    ) -> Result<Listeners> {
        let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) else {
            return Ok(Listeners { plain: Some(listener), tls: None });
        };
        let tls = Tls::from_files(certificate, key)?;
        Ok(match &self.tls_listen {
            Some(address) => Listeners { plain: Some(listener), tls: Some((bind(address)?, tls)) },
            None => Listeners { plain: None, tls: Some((listener, tls)) },
        })
    }
}
