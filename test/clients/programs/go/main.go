// net/http with its default transport: the arguments are column, base URL, file to upload.
package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

func main() {
	column, base, path := os.Args[1], os.Args[2], os.Args[3]
	key := os.Getenv("API_KEY")
	var request *http.Request
	var err error
	switch column {
	case "header":
		request, err = http.NewRequest("GET", base+"/echo", nil)
		check(err)
		request.Header.Set("Authorization", "Bearer "+key)
	case "body":
		request, err = http.NewRequest("POST", base+"/echo", strings.NewReader(`{"key":"`+key+`"}`))
		check(err)
		request.Header.Set("Content-Type", "application/json")
	case "upload":
		file, openErr := os.Open(path)
		check(openErr)
		request, err = http.NewRequest("PUT", base+"/upload", file)
		check(err)
	case "stream":
		request, err = http.NewRequest("GET", base+"/events", nil)
		check(err)
	}
	response, err := http.DefaultClient.Do(request)
	check(err)
	defer response.Body.Close()
	if column != "stream" {
		_, err = io.Copy(os.Stdout, response.Body)
		check(err)
		return
	}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		fmt.Println(lines.Text())
	}
	check(lines.Err())
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
