// ureq: the arguments are column, base URL, file to upload.
use std::io::{BufRead, BufReader};
use std::{env, fs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = env::args().collect();
    let (column, base, path) = (&args[1], &args[2], &args[3]);
    let key = env::var("API_KEY")?;
    let proxy = ureq::Proxy::new(env::var("HTTPS_PROXY")?)?;
    let agent = ureq::AgentBuilder::new().proxy(proxy).build();
    let response = match column.as_str() {
        "header" => agent
            .get(&format!("{base}/echo"))
            .set("Authorization", &format!("Bearer {key}"))
            .call()?,
        "body" => agent
            .post(&format!("{base}/echo"))
            .set("Content-Type", "application/json")
            .send_string(&format!("{{\"key\":\"{key}\"}}"))?,
        "upload" => agent.put(&format!("{base}/upload")).send(fs::File::open(path)?)?,
        _ => agent.get(&format!("{base}/events")).call()?,
    };
    for line in BufReader::new(response.into_reader()).lines() {
        println!("{}", line?);
    }
    Ok(())
}
