// go run hw.go METHOD PARAMS: one call to the daemon, its reply on stdout.
package main

import ("bufio"; "fmt"; "net"; "os")

func main() {
	line, err := net.Dial("unix", os.Getenv("HWTOOL_SOCKET")+"/agent.sock")
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(line, `{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`+"\n", os.Args[1], os.Args[2])
	reply, _ := bufio.NewReader(line).ReadString('\n')
	fmt.Print(reply)
}
